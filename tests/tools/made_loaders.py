"""Loaders over one dataset of made pictures, each with a change that people make by mistake."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, Dataset

SAMPLES, SIDE = 250, 24
Picture = npt.NDArray[np.float32]
Change = Callable[[Picture, np.random.Generator], Picture]


@cache
def picture(index: int) -> Picture:
    """Picture with another colour, direction, contrast and patchwork per sample."""
    draw = np.random.default_rng(index)
    y, x = np.mgrid[0:SIDE, 0:SIDE] / SIDE
    planes = [
        draw.uniform(0.2, 0.8) + draw.uniform(-0.5, 0.5) * x + draw.uniform(-0.5, 0.5) * y
        + draw.uniform(0.1, 0.3) * np.sin(draw.uniform(4, 12) * x + draw.uniform(4, 12) * y)
        for _ in range(3)
    ]  # fmt: skip
    red, green, blue = planes
    patches = np.kron(draw.normal(0, 0.3, (8, 8)), np.ones((SIDE // 8, SIDE // 8)))
    return np.clip(np.stack([red + 0.3, green, blue - 0.2]) + patches, 0, 1).astype(np.float32)


def flipped(image: Picture, draw: np.random.Generator, *, chance: float = 0.5) -> Picture:
    return image[:, :, ::-1] if draw.random() < chance else image


def cropped(image: Picture, draw: np.random.Generator, *, least: float = 0.5) -> Picture:
    """Random square window of the picture, resized by nearest."""
    side = int(SIDE * np.sqrt(draw.uniform(least, 1)))
    top, left = draw.integers(0, SIDE - side + 1, 2)
    places = np.arange(SIDE) * side // SIDE
    return image[:, top + places][:, :, left + places]


class Pictures(Dataset[Any]):
    """Pictures with label and name."""

    def __init__(
        self,
        *changes: Change,
        indices: Sequence[int] = range(SAMPLES),
        label: Callable[[int], int] = lambda index: index % 10,
        seed: int = 0,
        names: bool = True,
        dtype: Any = np.float32,
    ) -> None:
        self.changes, self.indices, self.label, self.names, self.dtype = changes, indices, label, names, dtype
        self.draw = np.random.default_rng(seed)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, row: int) -> dict[str, Any]:
        index = self.indices[row]
        image = picture(index)
        for change in self.changes:
            image = change(image, self.draw)
        sample = {"image": np.ascontiguousarray(image).astype(self.dtype), "label": self.label(index)}
        return {**sample, "name": f"{index}.jpg"} if self.names else sample


def loader(dataset: Dataset[Any], *, shuffle: bool = True, seed: int = 1, **options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(seed)
    return DataLoader(dataset, batch_size=16, shuffle=shuffle, generator=generator, **options)


def reference() -> DataLoader[Any]:
    return loader(Pictures(cropped, flipped))


def same() -> DataLoader[Any]:
    return loader(Pictures(cropped, flipped, seed=7), seed=8)


def without_flips() -> DataLoader[Any]:
    return loader(Pictures(cropped, seed=7), seed=8)


def flips_lost_at_the_same_seed() -> DataLoader[Any]:
    """The windows of `reference`, in its order, with no flips."""
    return loader(Pictures(cropped, partial(flipped, chance=0.0)))


def nameless() -> DataLoader[Any]:
    return loader(Pictures(cropped, flipped, names=False))


def nameless_of_other_draws() -> DataLoader[Any]:
    return loader(Pictures(cropped, flipped, names=False, seed=7), seed=8)
