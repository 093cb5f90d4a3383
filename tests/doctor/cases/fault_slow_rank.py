"""Planted: rank 1 of two makes its batches more slowly than the other, which waits for it in each step.

A batch: 2 ms on rank 0, 60 ms on rank 1; a step: 10 ms."""

from __future__ import annotations

import time

import torch
from planted_ranks import train_together
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("Rank 1 is the last",)
RANKS = 2


class Samples(Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.seconds = 0.0005 if rank == 0 else 0.015

    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(self.seconds)
        return torch.full((16,), float(index))


if __name__ == "__main__":
    train_together(lambda rank: DataLoader(Samples(rank), batch_size=4, num_workers=1), seconds=0.010)
