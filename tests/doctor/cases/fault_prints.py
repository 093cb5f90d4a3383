"""Planted: each step prints a tensor that has its numbers in full.

A batch of 8 is made at once; a step: 5 ms, and some 10 ms of the printing."""

from __future__ import annotations

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("Printing takes",)


class Signals(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((600,), index / 7)


class Scale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        print("batch", batch[0])
        return self.weight * batch[0, 0]


if __name__ == "__main__":
    torch.set_printoptions(threshold=1_000)
    train(DataLoader(Signals(), batch_size=8, num_workers=2), seconds=0.005, model=Scale())
