"""Planted: each image is rotated and blurred on the CPU, at full size.

A batch of 2: some 40 ms of it in each of 2 workers; a step: 10 ms."""

from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image, ImageFilter
from planted import train
from planted_data import photograph
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("transforms",)


class Augmented(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.images = [photograph(number, 640, 480) for number in range(4)]

    def __len__(self) -> int:
        return 2_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.images[index % len(self.images)]
        image = image.rotate(random.uniform(-30, 30), resample=Image.Resampling.BICUBIC)
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(2, 6)))
        return torch.from_numpy(np.array(image.resize((224, 224))))


if __name__ == "__main__":
    train(DataLoader(Augmented(), batch_size=2, shuffle=True, num_workers=2), seconds=0.010)
