"""Small models and loops that train, for tests of what a probe sees of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, TensorDataset


def pairs(count: int) -> TensorDataset:
    """Inputs [8] and targets [1]."""
    generator = torch.Generator().manual_seed(0)
    return TensorDataset(torch.randn(count, 8, generator=generator), torch.randn(count, 1, generator=generator))


def loader(count: int = 24, **options: Any) -> DataLoader[Any]:
    return DataLoader(pairs(count), **{"batch_size": 4, **options})


class Stream(IterableDataset[Tensor]):
    """Each worker gives `count` samples."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return iter(torch.arange(self.count, dtype=torch.float32))


def forever(batches: Iterable[Any]) -> Iterator[Any]:
    """Pass after pass."""
    while True:
        yield from batches


class Loop:
    """A model, its optimizer, and one step of them."""

    def __init__(self) -> None:
        self.model: Callable[..., Tensor] = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)  # type: ignore[attr-defined]

    def loss(self, batch: Any) -> Tensor:
        inputs, targets = batch
        return (self.model(inputs) - targets).square().mean()

    def step(self, batch: Any) -> None:
        self.optimizer.zero_grad()
        self.loss(batch).backward()
        self.optimizer.step()

    def train(self, batches: Iterable[Any]) -> None:
        for batch in batches:
            self.step(batch)
