"""A script as many are: steps of about 100 ms, half of which wait for PNGs that are decoded and turned.

A batch of 7: some 180 ms in each of 2 workers; a step on the device: 50 ms. Each epoch of 101 steps starts workers
anew."""

from __future__ import annotations

import random

import numpy as np
import torch
from PIL import Image
from planted import train
from planted_data import PHOTOGRAPHS, pngs
from torch.utils.data import DataLoader, Dataset


class Photographs(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.paths = pngs(1024, 768) * (704 // PHOTOGRAPHS)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with Image.open(self.paths[index]) as image:
            turned = image.convert("RGB").resize((512, 384)).rotate(random.uniform(-10, 10))
            return torch.from_numpy(np.array(turned))


if __name__ == "__main__":
    train(DataLoader(Photographs(), batch_size=7, shuffle=True, num_workers=2), seconds=0.050)
