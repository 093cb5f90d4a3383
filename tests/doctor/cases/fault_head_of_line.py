"""Planted: one sample in 80 is a huge file that takes 250 ms; batches made after it wait for it in the queue.

A batch of 4: 10 ms, or 260 once in 20; a step: 14 ms. Four workers make 4 batches in that time and keep up by far, but
for the order."""

from __future__ import annotations

import time

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("a later batch is ready",)


class Files(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.250 if index % 80 == 7 else 0.0025)
        return torch.full((16,), float(index))


if __name__ == "__main__":
    train(DataLoader(Files(), batch_size=4, num_workers=4), seconds=0.014)
