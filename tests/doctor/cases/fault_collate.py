"""Planted: a collate function that goes through every number in Python.

A batch of 8: some 60 ms of collate in each of 2 workers; a step: 8 ms."""

from __future__ import annotations

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("collate",)


class Signals(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((50_000,), float(index))


def collate(samples: list[torch.Tensor]) -> torch.Tensor:
    return torch.tensor([[0.5 * value for value in sample.tolist()] for sample in samples])


if __name__ == "__main__":
    train(DataLoader(Signals(), batch_size=8, shuffle=True, num_workers=2, collate_fn=collate), seconds=0.008)
