"""Planted faults of files and archives:

python planted_reading.py fault_tar_lookup
"""

from __future__ import annotations

import io
import os
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from planted import burn, made, planted, train
from planted_data import PHOTOGRAPHS, archive, encoded_pngs, random_bytes, sample_names
from throttled import ThrottledFiles
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

FILE_BYTES = 8_000_000


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
        file.write(os.urandom(FILE_BYTES))
        os.fsync(file.fileno())  # what is not on the disk yet, the cache keeps


@planted("from disk, not from the page cache", "reading files")
def fault_cold_cache() -> None:
    """Files that the page cache never holds, since it is emptied of each one before that is read.

    A batch of 2 files of 8 MB from disk; a step: 10 ms."""
    dataset = Files([made(f"{FILE_BYTES}-{number}.bin", write) for number in range(8)])
    train(DataLoader(dataset, batch_size=2, shuffle=True, num_workers=1), seconds=0.010)


@planted("reading files")
def fault_slow_storage() -> None:
    """Storage that gives 2 MB/s to all readers together.

    A batch of 4 files of 10 kB: 20 ms however many workers read; a step: 8 ms. Only faster storage, or a copy, heals
    it."""
    dataset = ThrottledFiles(2, size=10_000, bytes_per_s=2e6)
    train(DataLoader(dataset, batch_size=4, num_workers=2), seconds=0.008)


def tensor_of(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def quarter(data: bytes) -> torch.Tensor:
    with Image.open(io.BytesIO(data)) as image:
        return torch.from_numpy(np.array(image.reduce(4)))


def read_member(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


class Archive(IterableDataset[torch.Tensor]):
    """Each worker gives its share of an epoch."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __iter__(self) -> Iterator[torch.Tensor]:
        info = get_worker_info()
        with tarfile.open(self.path) as tar:
            members = [member for member in tar.getmembers() if member.size]
            for member in members[info.id :: info.num_workers]:
                yield tensor_of(read_member(tar, member))


@planted("scanning archive headers")
def fault_header_scan() -> None:
    """Each epoch opens the archive anew and so scans the headers of its 20,000 members.

    A scan: some 0.5 s in each of 2 workers; an epoch: 20 steps of 10 ms. The workers themselves live on."""
    dataset = Archive(archive(20_000, random_bytes(160, 5_000)))
    train(DataLoader(dataset, batch_size=8, num_workers=2, persistent_workers=True), seconds=0.010)


class Members(Dataset[torch.Tensor]):
    """Samples looked up by name in an archive that each worker opens."""

    def __init__(self, path: Path, names: list[str], read: Callable[[bytes], torch.Tensor] = tensor_of) -> None:
        self.path, self.names, self.read = path, names, read
        self.tar: tarfile.TarFile | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.tar is None:
            self.tar = tarfile.open(self.path)  # noqa: SIM115 - as long as the worker lives
        return self.read(read_member(self.tar, self.member(self.tar, self.names[index])))

    def member(self, tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
        return tar.getmember(name)


@planted("archive lookup")
def fault_tar_lookup() -> None:
    """Each sample is looked up by name in a tar of 100,000 members, which tarfile searches from its end.

    A batch of 16: some 40 ms of it in each of 2 workers; a step: 8 ms. An index of the archive heals it."""
    dataset = Members(archive(100_000, random_bytes(100, 5_000)), sample_names(100_000, 100) * 100)
    train(DataLoader(dataset, batch_size=16, shuffle=True, num_workers=2), seconds=0.008)


@planted("archive lookup", "decode", steps=200)
def two_lookup_decode() -> None:
    """Linear lookup in a tar of 100,000 members, and PNGs that are decoded at four times the size trained on.

    A batch of 4: some 10 ms of lookup and 20 ms of decoding in each of 2 workers; a step: 6 ms. Once, in the first
    hundred steps, each worker collects garbage for 120 ms, members and all, which weighs too much in few steps."""
    names = sample_names(100_000, PHOTOGRAPHS) * 500
    dataset = Members(archive(100_000, encoded_pngs(480, 320)), names, quarter)
    train(DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2), seconds=0.006)


class Listed(Members):
    members: dict[str, tarfile.TarInfo] | None = None

    def member(self, tar: tarfile.TarFile, name: str) -> tarfile.TarInfo:
        if self.members is None:
            self.members = {member.name: member for member in tar.getmembers()}
        return self.members[name]


def import_libraries(worker: int) -> None:
    burn(0.200)


@planted("scanning archive headers", "starting workers")
def two_scan_respawn() -> None:
    """Workers are started anew for each epoch, in a process that is slow to start them; and each of them scans the
    headers of its archive, since it opens that anew.

    A start: 200 ms for each of 2 workers; a scan of 10,000 members: some 250 ms; an epoch: 20 steps of 10 ms."""
    dataset = Listed(archive(10_000, random_bytes(80, 5_000)), sample_names(10_000, 80))
    batches = DataLoader(dataset, 4, shuffle=True, num_workers=2, worker_init_fn=import_libraries)
    train(batches, seconds=0.010)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
