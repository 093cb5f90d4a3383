"""Planted: the dataset is a list of three million Python objects; workers that read it copy it, page by page.

A batch is made in 5 ms; a step: 20 ms; 3 workers come to hold 1 GB that they shared at first."""

from __future__ import annotations

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("shared with their parent",)
STEPS = 300
"""Memory is looked at every five seconds."""
RECORDS = 3_000_000
A_SAMPLE = 10_000


class Records(Dataset[torch.Tensor]):
    def __init__(self) -> None:
        self.records = [f"images/train/{number:032d}.jpg" for number in range(RECORDS)]

    def __len__(self) -> int:
        return RECORDS // A_SAMPLE * 100

    def __getitem__(self, index: int) -> torch.Tensor:
        start = index * A_SAMPLE % RECORDS
        return torch.tensor([sum(map(len, self.records[start : start + A_SAMPLE]))])


if __name__ == "__main__":
    train(DataLoader(Records(), batch_size=4, shuffle=True, num_workers=3), seconds=0.020)
