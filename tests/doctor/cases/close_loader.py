"""Planted: storage that is 14 % slower than the device.

A batch of 4 files of 38 kB at 2 MB/s: 76 ms; a step: 64 ms on the device, 2.5 for the loop and to receive a batch."""

from __future__ import annotations

from planted import train
from throttled import ThrottledFiles
from torch.utils.data import DataLoader

EXPECTED = ("reading files",)


if __name__ == "__main__":
    dataset = ThrottledFiles(2, size=38_000, bytes_per_s=2e6)
    train(DataLoader(dataset, batch_size=4, num_workers=2), seconds=0.064)
