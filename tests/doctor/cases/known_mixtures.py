"""Trainings whose stages take set times, and which measure themselves:

python known_mixtures.py CASE [the options of known_training.py]
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, PacedPickle, burn, decoded, repeat, sleep
from torch.utils.data import Dataset, IterableDataset, default_collate


class Images(Dataset[Any]):
    """Images out of memory, after a rest of __getitem__ that sleeps."""

    def __init__(self, count: int, image: bytes, rest_s: float) -> None:
        self.files, self.rest_s = [image] * count, rest_s

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> Any:
        with stage("getitem"):
            sleep(self.rest_s)
            return torch.from_numpy(decoded(self.files[index]))


def images(known: Namespace) -> None:
    """Decoding sleeps and burns, the rest of __getitem__ sleeps.

    A sample: decode 4 ms (2 asleep, 2 computing), getitem 2 ms. A batch of 4: 24 ms."""
    dataset = Images(4 * known.steps, PacedImage.encoded(8, slept=0.002, burnt=0.002), 0.002)
    pace = Pace(forward=0.003 * known.compute, backward=0.003, optimizer=0.001, other=0.001)
    train(loader(dataset, known, batch_size=4), pace, steps=known.steps)


def accumulated(known: Namespace) -> None:
    """Three micro-batches a step, of images of several megabytes that default_collate has to copy.

    A sample: decode 3 ms, getitem 1 ms, and what a copy of 1 MB costs. A batch of 4: 16 ms and more."""
    dataset = Images(12 * known.steps, PacedImage.encoded(1000, slept=0.002, burnt=0.001), 0.001)
    pace = Pace(forward=0.002 * known.compute, backward=0.002, optimizer=0.003, other=0.002)
    train(loader(dataset, known, batch_size=4), pace, steps=known.steps, accumulate=3)


class Stream(IterableDataset[torch.Tensor]):
    """Endless: each worker gives the same."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        file = PacedImage.encoded(8, burnt=0.002)
        while True:
            with stage("getitem"):
                sleep(0.003)
                image = torch.from_numpy(decoded(file))
            yield image


def collate_asleep(samples: list[torch.Tensor]) -> torch.Tensor:
    with stage("collate"):
        sleep(0.004)
        return default_collate(samples)


def stream(known: Namespace) -> None:
    """An IterableDataset that sleeps between its samples and decodes them.

    A sample: getitem 3 ms, decode 2 ms. A batch of 4: 20 ms, and a collate of 4 ms."""
    batches = loader(Stream(), known, batch_size=4, collate_fn=collate_asleep)
    train(batches, Pace(forward=0.004 * known.compute, backward=0.002), steps=known.steps)


class Numbers(Images):
    """Small samples."""

    def __getitem__(self, index: int) -> int:
        with stage("getitem"):
            sleep(self.rest_s)
            return index


def slow(samples: list[int]) -> torch.Tensor:
    with stage("collate"):
        sleep(0.016)
        burn(0.008)
        return torch.tensor(samples)


def slow_collate(known: Namespace) -> None:
    """A collate that takes longer than all of its samples.

    A sample: getitem 2 ms. A batch of 4: 8 ms, and 24 ms of collate, 8 of them computing."""
    batches = loader(Numbers(4 * known.steps, b"", 0.002), known, batch_size=4, collate_fn=slow)
    train(batches, Pace(forward=0.002 * known.compute, backward=0.002, optimizer=0.001), steps=known.steps)


class Objects(Images):
    """Samples that are objects: dear to pickle in the worker, and to unpickle in the training thread."""

    def __getitem__(self, index: int) -> PacedPickle:
        with stage("getitem"):
            sleep(self.rest_s)
            return PacedPickle(0.002, 0.001)


def large_pickle(known: Namespace) -> None:
    """A sample: getitem 3 ms, 2 ms to pickle, 1 ms to unpickle. A batch of 4: 12 ms made, 8 ms pickled, 4 ms
    unpickled."""
    batches = loader(Objects(4 * known.steps, b"", 0.003), known, batch_size=4, collate_fn=list)
    train(batches, Pace(forward=0.002 * known.compute, backward=0.002), steps=known.steps)


MEMBERS = 8_000
REOPENED = 48
"""After so many samples, as a script does that opens its archive anew now and then."""


class TarMembers(Dataset[torch.Tensor]):
    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.tar: tarfile.TarFile | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.tar is None or index % REOPENED == 0:
            with stage("scan"):
                self.tar = tarfile.open(self.path)  # noqa: SIM115 - as long as the worker lives
                self.tar.getmembers()
        tar, name = self.tar, f"{index % 50:06d}.paced"
        with stage("getitem"):
            with stage("lookup"):
                repeat(0.003, lambda: tar.getmember(name))
                member = tar.getmember(name)
            with stage("read"):
                repeat(0.001, lambda: tar.extractfile(member).read())
                data = tar.extractfile(member).read()
            return torch.from_numpy(decoded(data))


def write_tar(path: Path) -> None:
    data = PacedImage.encoded(8, burnt=0.003) + bytes(2_000_000)
    with tarfile.open(path, "w") as tar:
        for number in range(MEMBERS):
            member = tarfile.TarInfo(f"{number:06d}.paced")
            member.size = len(data) if number < 50 else 0
            tar.addfile(member, io.BytesIO(data))


def tar_members(known: Namespace) -> None:
    """Images out of a tar: a linear search for each name, a read, and a decoder that computes.

    A sample: lookup 3 ms, read 1 ms, decode 3 ms. A batch of 4: 28 ms. The headers are scanned anew every 48
    samples."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.tar"
        write_tar(path)
        batches = loader(TarMembers(path, 4 * known.steps), known, batch_size=4)
        train(batches, Pace(forward=0.004 * known.compute, backward=0.004), steps=known.steps)


if __name__ == "__main__":
    globals()[sys.argv.pop(1)](arguments())
