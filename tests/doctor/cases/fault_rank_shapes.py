"""Planted: each rank draws the size of each of its batches by itself, so that both wait for the larger one.

A batch is made in 1 ms; a step: 8 to 32 ms by the size, on average 20 and 24 for the larger of two."""

from __future__ import annotations

import random
from typing import Any

import torch
from planted_ranks import train_together
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("differ across ranks",)
RANKS = 2
SECONDS_PER_PIXEL = 0.008 / 128**2


class Crops(Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> torch.Tensor:
        side = random.Random(f"{self.rank} {index // 4}").randrange(128, 257, 32)
        return torch.zeros(3, side, side, dtype=torch.uint8)


def seconds(batch: Any) -> float:
    return float(batch.shape[-1] * batch.shape[-2] * SECONDS_PER_PIXEL)


if __name__ == "__main__":
    train_together(lambda rank: DataLoader(Crops(rank), batch_size=4, num_workers=1), seconds=seconds)
