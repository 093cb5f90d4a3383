"""Planted: linear lookup in a tar of 100,000 members, and PNGs that are decoded at four times the size trained on.

A batch of 4: some 10 ms of lookup and 20 ms of decoding in each of 2 workers; a step: 6 ms. Once, in the first hundred
steps, each worker collects garbage for 120 ms, members and all, which weighs too much in few steps."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from planted import train
from planted_data import PHOTOGRAPHS, archive, encoded_pngs, sample_names
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("archive lookup", "decode")
STEPS = 200
MEMBERS = 100_000


class Photographs(Dataset[torch.Tensor]):
    def __init__(self, path: Path) -> None:
        self.path, self.names = path, sample_names(MEMBERS, PHOTOGRAPHS) * 500
        self.tar: tarfile.TarFile | None = None

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.tar is None:
            self.tar = tarfile.open(self.path)  # noqa: SIM115 - as long as the worker lives
        file = self.tar.extractfile(self.tar.getmember(self.names[index]))
        assert file is not None
        with Image.open(io.BytesIO(file.read())) as image:
            return torch.from_numpy(np.array(image.reduce(4)))


if __name__ == "__main__":
    dataset = Photographs(archive(MEMBERS, encoded_pngs(480, 320)))
    train(DataLoader(dataset, batch_size=4, shuffle=True, num_workers=2), seconds=0.006)
