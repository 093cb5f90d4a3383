"""Planted: each batch is a list of a dict for each of two devices, whose images are of sizes of their own.

A batch is made in 1 ms; a step: 8 to 32 ms by the larger part's size, on average 24, and 20 for parts of one size."""

from __future__ import annotations

import random
from typing import Any

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("Batches are lists of 2 parts, which differ in size",)
DEVICES = 2
SECONDS_PER_PIXEL = 0.008 / 128**2


class Crops(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        side = random.Random(index // 4).randrange(128, 257, 32)
        return torch.zeros(3, side, side, dtype=torch.uint8)


def by_device(samples: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    each = len(samples) // DEVICES
    parts = [samples[place : place + each] for place in range(0, len(samples), each)]
    return [{"image": torch.stack(part), "label": torch.zeros(each, dtype=torch.int64)} for part in parts]


def seconds(batch: Any) -> float:
    return max(float(part["image"][0, 0].numel()) for part in batch) * SECONDS_PER_PIXEL


if __name__ == "__main__":
    train(DataLoader(Crops(), batch_size=8, num_workers=1, collate_fn=by_device), seconds=seconds)
