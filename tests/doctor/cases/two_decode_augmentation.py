"""Planted: large PNGs, and a rotation after them, about equally dear.

A batch of 2: some 20 ms of each in each of 2 workers; a step: 8 ms."""

from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image
from planted import train
from planted_data import pngs
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("decode", "transforms")


class Augmented(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.paths = pngs(1024, 768) * 300

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            turned = image.reduce(2).rotate(random.uniform(-30, 30), resample=Image.Resampling.BICUBIC)
            return torch.from_numpy(np.array(turned))


if __name__ == "__main__":
    train(DataLoader(Augmented(), batch_size=2, shuffle=True, num_workers=2), seconds=0.008)
