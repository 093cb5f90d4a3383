"""Planted: 1024×768 PNGs are decoded in full to be trained on at 256×192.

A batch of 2: some 30 ms of decoding in each of 2 workers; a step: 8 ms."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from planted import train
from planted_data import pngs
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("decode",)


class Photographs(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.paths = pngs(1024, 768) * 200

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            return torch.from_numpy(np.array(image.reduce(4)))


if __name__ == "__main__":
    train(DataLoader(Photographs(), batch_size=2, shuffle=True, num_workers=2), seconds=0.008)
