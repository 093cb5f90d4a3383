"""Images out of a tar: a linear search for each name, a read, and a decoder that computes.

A sample: lookup 3 ms, read 1 ms, decode 3 ms. A batch of 4: 28 ms. The headers are scanned anew every 48 samples."""

from __future__ import annotations

import io
import tarfile
import tempfile
from pathlib import Path

import torch
from known_training import Pace, arguments, loader, train
from known_truth import stage
from known_work import PacedImage, decoded, repeat
from torch.utils.data import Dataset

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


if __name__ == "__main__":
    known = arguments()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.tar"
        write_tar(path)
        batches = loader(TarMembers(path, 4 * known.steps), known, batch_size=4)
        train(batches, Pace(forward=0.004 * known.compute, backward=0.004), steps=known.steps)
