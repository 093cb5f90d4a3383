"""Planted: files that the page cache never holds, since it is emptied of each one before that is read.

A batch of 2 files of 8 MB from disk; a step: 10 ms."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from planted import made, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("from disk, not from the page cache", "reading files")
BYTES = 8_000_000


class Files(Dataset[torch.Tensor]):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths * 1_000

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with open(self.paths[index], "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return torch.tensor(file.read()[0])


def write(path: Path) -> None:
    with open(path, "wb") as file:
        file.write(os.urandom(BYTES))
        os.fsync(file.fileno())  # what is not on the disk yet, the cache keeps


if __name__ == "__main__":
    dataset = Files([made(f"{BYTES}-{number}.bin", write) for number in range(8)])
    train(DataLoader(dataset, batch_size=2, shuffle=True, num_workers=1), seconds=0.010)
