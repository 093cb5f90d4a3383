"""Planted: workers are started anew for each epoch, in a process that is slow to start them; and each of them scans the
headers of its archive, since it opens that anew.

A start: 200 ms for each of 2 workers; a scan of 10,000 members: some 250 ms; an epoch: 20 steps of 10 ms."""

from __future__ import annotations

import tarfile
from pathlib import Path

import torch
from planted import burn, train
from planted_data import archive, random_bytes, sample_names
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("scanning archive headers", "starting workers")
MEMBERS, SAMPLES = 10_000, 80


class Members(Dataset[torch.Tensor]):
    def __init__(self, path: Path) -> None:
        self.path, self.names = path, sample_names(MEMBERS, SAMPLES)
        self.members: dict[str, tarfile.TarInfo] = {}

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> torch.Tensor:
        if not self.members:
            self.tar = tarfile.open(self.path)  # noqa: SIM115 - as long as the worker lives
            self.members = {member.name: member for member in self.tar.getmembers()}
        file = self.tar.extractfile(self.members[self.names[index]])
        assert file is not None
        return torch.frombuffer(bytearray(file.read()), dtype=torch.uint8)


def import_libraries(worker: int) -> None:
    burn(0.200)


if __name__ == "__main__":
    dataset = Members(archive(MEMBERS, random_bytes(SAMPLES, 5_000)))
    batches = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2, worker_init_fn=import_libraries)
    train(batches, seconds=0.010)
