"""Nothing planted: batches are made a third faster than the device takes them.

A batch: 60 ms in each of two workers, two thirds of that reading; a step: 40 ms."""

from __future__ import annotations

import time

import torch
from planted import burn, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ()


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.010)
        burn(0.005)
        return torch.full((16,), float(index))


if __name__ == "__main__":
    train(DataLoader(Samples(), batch_size=4, num_workers=2), seconds=0.040)
