"""Datasets for `cached`: as users write them, importable by spawned workers."""

from __future__ import annotations

import random
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import Dataset

Pair = namedtuple("Pair", "image label")
LENGTH, SIDE = 24, 12


class Pictures(Dataset):
    """Decoded pictures and labels; each making is counted in a file, whichever process does it."""

    def __init__(self, log: Path | None = None, *, shade: int = 0) -> None:
        self.log = log
        self.shade = shade
        self.classes = ["cat", "dog"]

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Pair:
        if self.log is not None:
            with open(self.log, "ab") as file:
                file.write(b".")
        rng = np.random.default_rng(index)
        pixels = rng.integers(0, 256, (SIDE + index % 3, SIDE, 3), np.uint8)
        pixels[0] = self.shade
        return Pair(Image.fromarray(pixels), index % 2)


def crop_and_flip(sample: Pair) -> dict[str, Any]:
    """Draws from all three global sources, and writes into its sample."""
    pixels = np.asarray(sample.image)[:SIDE].copy()
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    shifted = np.roll(pixels, np.random.randint(SIDE), axis=1)
    return {"image": torch.from_numpy(shifted.copy()), "noise": torch.rand(1), "label": sample.label}


class Augmented(Pictures):
    """The same in one, as scripts have it before."""

    def __getitem__(self, index: int) -> Any:
        return crop_and_flip(super().__getitem__(index))


def seed_worker(_: int) -> None:
    """Python and numpy follow torch, as its notes on reproducibility have it."""
    seed = torch.initial_seed() % 2**32
    np.random.seed(seed)
    random.seed(seed)
