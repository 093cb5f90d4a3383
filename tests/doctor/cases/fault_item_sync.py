"""Planted: the training loop counts a batch's hits by reading each number of two tensors with .item().

A batch of 8 is made at once; a step: 5 ms, and some 10 ms of the counting."""

from __future__ import annotations

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("Reading tensors in the training loop takes",)
NUMBERS = 2_500


class Signals(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((NUMBERS,), float(index))


class Scale(torch.nn.Module):
    """The model, which also keeps its accuracy as some scripts do."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.hits = 0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        self.hits += count_hits(batch[0], batch[1])
        return self.weight * batch[0, 0]


def count_hits(given: torch.Tensor, wanted: torch.Tensor) -> int:
    return sum(given[at].item() == wanted[at].item() for at in range(NUMBERS))


if __name__ == "__main__":
    train(DataLoader(Signals(), batch_size=8, num_workers=2), seconds=0.005, model=Scale())
