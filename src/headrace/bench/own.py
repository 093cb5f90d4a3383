"""Headrace's side of the comparison."""

from __future__ import annotations

from collections.abc import Iterator

import torch  # noqa: F401  # the Loader needs it: imported here, as the peer does, before the clock starts

import headrace as hr
from headrace.tools.bench.settings import CROP_PX, FLIP, Settings, samples


def batch_sizes(settings: Settings, round_number: int) -> Iterator[int]:
    """Open the dataset, load one long epoch, and yield the size of each batch while it is held."""
    data = hr.open(settings.path)
    normalize = hr.IMAGENET if settings.output == "float32" else None
    loader = hr.Loader(
        data.select(samples(len(data), settings)),
        {"image": hr.Image(dtype=settings.output, normalize=normalize)},
        view=hr.RandomResizedCrop(CROP_PX, flip=FLIP),
        batch_size=settings.batch_size,
        shuffle=True,
        seed=settings.seed + round_number,
        threads=settings.threads,
    )
    for batch in loader:
        yield len(batch["image"])
