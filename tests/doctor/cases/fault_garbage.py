"""Planted: a dataset of many small Python objects, and samples that have all of them looked at by a full
garbage collection.

A batch of 8: some 40 ms in each of 2 workers, most of it full garbage collections; a step: 5 ms."""

from __future__ import annotations

import gc
from typing import Any

import torch
from planted import train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("garbage collections",)
OBJECTS = 20_000


class Annotated(Dataset[torch.Tensor]):
    """Each sample has a list of boxes, each a dict of its own."""

    def __init__(self) -> None:
        self.boxes: list[Any] = [{"box": [at, at], "label": [at]} for at in range(OBJECTS)]

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if index % 4 == 0:
            gc.collect()  # as the allocations of a larger sample would bring about
        return torch.full((1_000,), float(len(self.boxes[index]["box"])))


if __name__ == "__main__":
    train(DataLoader(Annotated(), batch_size=8, shuffle=True, num_workers=2), seconds=0.005)
