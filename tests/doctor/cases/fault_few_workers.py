"""Planted: one worker makes batches more slowly than the device takes them, while a core is idle.

A batch: 20 ms of computing; a step: 14 ms. Two workers would do."""

from __future__ import annotations

import torch
from planted import burn, on_two_cores, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("1 worker never rests",)


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4_000

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(0.005)
        return torch.full((16,), float(index))


if __name__ == "__main__":
    on_two_cores()
    train(DataLoader(Samples(), batch_size=4, num_workers=1), seconds=0.014)
