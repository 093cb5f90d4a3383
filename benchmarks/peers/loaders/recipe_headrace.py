"""Headrace with the recipes' own settings: several crops of one decode, augmentations in its threads.

Names are looked up where a recipe is asked for, so that an earlier version still runs those that it knows.
"""

import torch  # noqa: F401  # the Loader needs it: imported before the clock starts, as the others import theirs
from task import CLASSES, GLOBAL_PX, IGNORE, LOCAL_PX, MASK_PX, SIDE_PX

import headrace as hr

CROP = hr.RandomResizedCrop(SIDE_PX, flip=0.5)
GLOBAL = hr.RandomResizedCrop(GLOBAL_PX, scale=(0.4, 1.0), flip=0.5)
LOCAL = hr.RandomResizedCrop(LOCAL_PX, scale=(0.05, 0.4), flip=0.5)
SEGMENT = [
    hr.RandomScale(tuple(range(MASK_PX // 2, MASK_PX * 2 + 1, 32))),
    hr.RandomCrop(MASK_PX, pad_if_needed=True, flip=0.5),
]


def batches(source, task, variant):
    fields, options = RECIPES[task.recipe](task)
    data = hr.open({"image": source, "mask": source.parent / "masks"}) if "mask" in fields else hr.open(source)
    if "mask" not in fields:
        fields["label"] = hr.Label()
    settings = {"batch_size": task.batch_size, "shuffle": True, "remainder": "drop", "threads": task.workers}
    loader = hr.Loader(data, fields, **settings, **options)
    *images, labels = fields
    return (([batch[name] for name in images], batch[labels]) for batch in loader)


def floats(task, **options):
    normalize = hr.IMAGENET if task.dtype == "float32" else None
    return hr.Image(view=CROP, dtype=task.dtype, normalize=normalize, **options)


def jitter(brightness, contrast, saturation, hue, grey):
    colour = hr.ColorJitter(brightness, contrast, saturation, hue)
    return [hr.RandomApply([colour], p=0.8), hr.RandomGrayscale(grey)]


def blur(kernel, p):
    return [hr.RandomApply([hr.GaussianBlur(kernel, (0.1, 2.0))], p=p)]


def plain(task):
    """Without a view of the field's own, as versions before it had none either."""
    normalize = hr.IMAGENET if task.dtype == "float32" else None
    return {"image": hr.Image(dtype=task.dtype, normalize=normalize)}, {"view": CROP}


def colour(task):
    return {"image": floats(task, augment=[hr.ColorJitter(0.4, 0.4, 0.4, 0.1)])}, {}


def randaugment(task):
    return {"image": floats(task, augment=[hr.RandAugment(2, 9), hr.RandomErasing(0.25)])}, {}


def simclr(task):
    return {"image": floats(task, augment=[*jitter(0.8, 0.8, 0.8, 0.2, 0.2), *blur(23, 0.5)], copies=2)}, {}


def dino_colour():
    return jitter(0.4, 0.4, 0.2, 0.1, 0.2)


def dino(task):
    colours = dino_colour()
    fields = {
        "first": hr.Image(source="image", view=GLOBAL, augment=[*colours, *blur(9, 1.0)]),
        "second": hr.Image(source="image", view=GLOBAL, augment=[*colours, *blur(9, 0.1), hr.RandomSolarize(128, 0.2)]),
        "local": hr.Image(source="image", view=LOCAL, augment=[*colours, *blur(9, 0.5)], copies=8),
    }
    return fields, {}


def dino_crop(task):
    """One crop a pass: the sum over ten passes is what several crops of one decode save."""
    (side,) = task.crops
    view, blurred = (GLOBAL, 0.55) if task.recipe == "dino-global" else (LOCAL, 0.5)
    solarized = [hr.RandomSolarize(128, 0.1)] if side == GLOBAL_PX else []
    return {"image": hr.Image(view=view, augment=[*dino_colour(), *blur(9, blurred), *solarized])}, {}


def segment(task):
    fields = {"image": hr.Image(), "mask": hr.Mask(ignore=IGNORE)}
    return fields, {"view": SEGMENT, "augment": [hr.RandomPhotometricDistort()]}


def mixed(task):
    mix = hr.MixUp if task.recipe == "mixup" else hr.CutMix
    fields, options = plain(task)
    return fields, options | {"batch": mix(alpha=1.0, num_classes=CLASSES)}


RECIPES = {
    "train": plain,
    "jitter": colour,
    "randaugment": randaugment,
    "simclr": simclr,
    "dino": dino,
    "dino-global": dino_crop,
    "dino-local": dino_crop,
    "segment": segment,
    "mixup": mixed,
    "cutmix": mixed,
}
