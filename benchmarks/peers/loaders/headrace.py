"""Headrace itself, from the folder, from one tar with its index beside it (variant "tar"), or from a pack of a form."""

import torch  # noqa: F401  # the Loader needs it: imported before the clock starts, as the others import theirs
from task import SHORT_SIDE_PX, SIDE_PX, WORKERS

import headrace as hr
from headrace.pack import Form, PackOptions, pack

from .folder import write_tar

VIEWS = {
    "train": hr.RandomResizedCrop(SIDE_PX, flip=0.5),
    "validate": [hr.Resize(SHORT_SIDE_PX), hr.CenterCrop(SIDE_PX)],
}


def prepare(photos, out, variant):
    if variant == "tar":
        write_tar(photos, out / "photos.tar")
        hr.open(out / "photos.tar")  # writes the index
    else:
        pack(hr.open(photos), out, PackOptions(form=Form(variant), short_side=SHORT_SIDE_PX), threads=WORKERS)


def opened(source, variant):
    if variant == "folder":
        return hr.open(source)
    if variant == "tar":
        return hr.open(source / "photos.tar", classes=True)
    return hr.open(str(source / "shard-*.tar"))


def batches(source, task, variant):
    dataset = opened(source, variant)
    normalize = hr.IMAGENET if task.dtype == "float32" else None
    loader = hr.Loader(
        dataset,
        {"image": hr.Image(dtype=task.dtype, normalize=normalize), "label": hr.Label()},
        view=VIEWS[task.recipe],
        batch_size=task.batch_size,
        shuffle=True,
        remainder="drop",
        threads=task.workers,
    )
    return ((batch["image"], batch["label"]) for batch in loader)
