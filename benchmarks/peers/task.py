"""What is asked of every loader, and how a loader answers.

A loader is a module of `loaders` with two functions:

    prepare(photos, out, variant)      once: writes the folder of class folders `photos` into the folder `out`, in the
                                       loader's own form
    batches(source, task, variant)     iterates over (images, labels): one shuffled pass; `source` is `out`, or
                                       `photos` where no form is needed

Images are [N, 3, 224, 224] or [N, 224, 224, 3]. A task of several crops takes [N, crops, …] too, and a list of either:
all that counts is how many crops of each side there are. Labels are [N], soft labels [N, classes], or masks.

`variant` tells forms or styles of one loader apart; registry.py lists them. The module is imported in the environment
of the loader only, and imports what it needs at its top, so that the time of an import is no part of a first batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

SIDE_PX = 224
SHORT_SIDE_PX = 256  # before the central crop of "validate"
AREA, ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)  # of RandomResizedCrop's windows, torchvision's own defaults
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, on the scale 0 to 1

RECIPES = {
    "train": f"RandomResizedCrop({SIDE_PX}) + flip",
    "validate": f"Resize({SHORT_SIDE_PX}) + CenterCrop({SIDE_PX})",
}
WORKERS = 2  # threads, or processes where a loader has only these; and cores
DTYPES = ("uint8", "float32")


CLASSES = 1000  # of soft labels
MASK_PX = 512
IGNORE = 255


@dataclass(frozen=True)
class Task:
    """One recipe at one output type; float32 is normalised by ImageNet's mean and deviation.

    `crops`: how many crops of each side a sample has. `label_shape`: that of one sample's label.
    """

    recipe: str
    dtype: str
    batch_size: int = 256
    workers: int = WORKERS
    crops: Mapping[int, int] = field(default_factory=lambda: {SIDE_PX: 1})
    label_shape: tuple[int, ...] = ()

    @property
    def name(self):
        return f"{self.recipe}-{self.dtype}"


TASKS = {task.name: task for task in (Task(recipe, dtype) for recipe in RECIPES for dtype in DTYPES)}

GLOBAL_PX, LOCAL_PX = 224, 96
AUGMENTED = {
    task.name: task
    for task in (
        Task("jitter", "uint8"),
        Task("randaugment", "float32"),
        Task("simclr", "uint8", crops={SIDE_PX: 2}),
        Task("dino", "uint8", crops={GLOBAL_PX: 2, LOCAL_PX: 8}),
        Task("dino-global", "uint8", crops={GLOBAL_PX: 1}),
        Task("dino-local", "uint8", crops={LOCAL_PX: 1}),
        Task("segment", "uint8", batch_size=32, crops={MASK_PX: 1}, label_shape=(MASK_PX, MASK_PX)),
        Task("mixup", "float32", label_shape=(CLASSES,)),
        Task("cutmix", "float32", label_shape=(CLASSES,)),
    )
}
"""What ../recipes.py measures beside TASKS: the augmentations of published training recipes. loaders/recipe_*.py."""
