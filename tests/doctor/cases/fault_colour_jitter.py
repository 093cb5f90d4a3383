"""Planted: brightness, contrast and colour of each photograph are changed by Pillow, at full size.

A batch of 4: some 40 ms of that in each of 2 workers; a step: 5 ms."""

from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image, ImageEnhance
from planted import train
from planted_data import photograph
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("fault_colour_jitter.py:22",)
JITTER = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def jittered(image: Image.Image) -> Image.Image:
    for enhancer in random.sample(JITTER, len(JITTER)):
        image = enhancer(image).enhance(random.uniform(0.6, 1.4))
    return image


class Photographs(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.images = [photograph(number, 960, 720) for number in range(4)]

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = jittered(self.images[index % len(self.images)])
        return torch.from_numpy(np.array(image.crop((100, 100, 324, 324))))


if __name__ == "__main__":
    train(DataLoader(Photographs(), batch_size=4, shuffle=True, num_workers=2), seconds=0.005)
