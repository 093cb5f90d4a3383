"""Planted: steps that take a labelled and an unlabelled batch, of two loaders, of which one is ten times slower.

A labelled batch of 4: 4 ms; an unlabelled one: 40 ms, each in a worker of its own; a step: 6 ms."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from planted import burn, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("(Unlabelled)",)


class Labelled(Dataset[torch.Tensor]):
    cost_s = 0.001

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(self.cost_s)
        return torch.full((100,), float(index))


class Unlabelled(Labelled):
    cost_s = 0.010


class Both:
    def __init__(self) -> None:
        self.labelled = DataLoader(Labelled(), batch_size=4, num_workers=1)
        self.unlabelled = DataLoader(Unlabelled(), batch_size=4, num_workers=1)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return zip(self.labelled, self.unlabelled, strict=True)


if __name__ == "__main__":
    train(Both(), seconds=0.006)
