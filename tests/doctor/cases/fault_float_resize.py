"""Planted: each photograph becomes floats at full size, and is resized then.

A batch of 4: some 40 ms of that in each of 2 workers; a step: 5 ms."""

from __future__ import annotations

import numpy as np
import torch
from planted import train
from planted_data import photograph
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("torch.nn.functional.interpolate at fault_float_resize.py:27",)
SIZE = (224, 224)


class Photographs(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.images = [torch.from_numpy(np.array(photograph(number, 960, 720))) for number in range(4)]

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.images[index % len(self.images)].permute(2, 0, 1).float()
        return functional.interpolate(image[None], SIZE, mode="bicubic", antialias=True)[0] / 255


if __name__ == "__main__":
    train(DataLoader(Photographs(), batch_size=4, shuffle=True, num_workers=2), seconds=0.005)
