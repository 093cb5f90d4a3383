"""Headrace itself, from the folder or (variant "tar") from one tar with its index beside it."""

import torch  # noqa: F401  # the Loader needs it: imported before the clock starts, as the others import theirs
from task import SHORT_SIDE_PX, SIDE_PX

import headrace as hr

from .folder import write_tar

VIEWS = {
    "train": hr.RandomResizedCrop(SIDE_PX, flip=0.5),
    "validate": [hr.Resize(SHORT_SIDE_PX), hr.CenterCrop(SIDE_PX)],
}


def prepare(photos, out, variant):
    write_tar(photos, out / "photos.tar")
    hr.open(out / "photos.tar")  # writes the index


def batches(source, task, variant):
    dataset = hr.open(source / "photos.tar", classes=True) if variant == "tar" else hr.open(source)
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
