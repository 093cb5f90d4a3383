"""Planted: each sample is looked up by name in a tar of 100,000 members, which tarfile searches from its end.

A batch of 16: some 40 ms of it in each of 2 workers; a step: 8 ms. An index of the archive heals it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import torch
from planted import train
from planted_data import archive, random_bytes, sample_names
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("archive lookup",)
MEMBERS, SAMPLES = 100_000, 100


class Members(Dataset[torch.Tensor]):
    def __init__(self, path: Path) -> None:
        self.path, self.names = path, sample_names(MEMBERS, SAMPLES) * 100
        self.tar: tarfile.TarFile | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.tar is None:
            self.tar = tarfile.open(self.path)  # noqa: SIM115 - as long as the worker lives
        file = self.tar.extractfile(self.tar.getmember(self.names[index]))
        assert file is not None
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


if __name__ == "__main__":
    dataset = Members(archive(MEMBERS, random_bytes(SAMPLES, 5_000)))
    train(DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2), seconds=0.008)
