"""Planted: storage that gives 2 MB/s to all readers together.

A batch of 4 files of 10 kB: 20 ms however many workers read; a step: 8 ms. Only faster storage, or a copy, heals it."""

from __future__ import annotations

from typing import BinaryIO

import torch
from planted import train
from throttled import ThrottledStorage
from torch.utils.data import DataLoader, Dataset, get_worker_info

EXPECTED = ("reading files",)
SIZE = 10_000


class Files(Dataset[torch.Tensor]):
    """Each worker reads one sample after the other from its own pipe."""

    def __init__(self, storage: ThrottledStorage) -> None:
        self.storage = storage
        self.file: BinaryIO | None = None

    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.file is None:
            self.file = open(self.storage.path(get_worker_info().id), "rb")  # noqa: SIM115 - as long as the worker
        return torch.frombuffer(bytearray(self.file.read(SIZE)), dtype=torch.uint8)


if __name__ == "__main__":
    dataset = Files(ThrottledStorage(2, size=SIZE, bytes_per_s=2e6))
    train(DataLoader(dataset, batch_size=4, num_workers=2), seconds=0.008)
