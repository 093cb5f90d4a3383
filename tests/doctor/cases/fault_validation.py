"""Planted: after every 20 steps a validation whose batches are made in the training thread, 20 ms each.

A training batch is made at once; a step: 6 ms; a validation: 10 batches, 200 ms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from planted import burn, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("Evaluation takes",)


class Samples(Dataset[torch.Tensor]):
    def __init__(self, count: int, cost_s: float) -> None:
        self.count, self.cost_s = count, cost_s

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(self.cost_s)
        return torch.full((100,), float(index))


class Validated:
    """Batches for training, with a validation after every 20 of them."""

    def __init__(self, training: DataLoader[Any], validation: DataLoader[Any]) -> None:
        self.training, self.validation = training, validation

    def __iter__(self) -> Iterator[Any]:
        for number, batch in enumerate(self.training):
            if number and number % 20 == 0:
                with torch.no_grad():
                    for held_out in self.validation:
                        held_out.square().mean()
            yield batch


if __name__ == "__main__":
    training = DataLoader(Samples(8_000, 0.0), batch_size=4, num_workers=1)
    train(Validated(training, DataLoader(Samples(40, 0.005), batch_size=4)), seconds=0.006)
