"""Planted: 12 workers on two cores.

At the start of each epoch all make their batches at once, so the first one is ready when all are; two workers would
have it after a sixth of that time.

A batch: 20 ms of computing; a step: 14 ms; an epoch: 24 steps, so two cores keep up with it otherwise."""

from __future__ import annotations

import torch
from planted import burn, on_two_cores, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("12 workers share 2 cores",)


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4 * 24

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(0.005)
        return torch.full((16,), float(index))


if __name__ == "__main__":
    on_two_cores()
    train(DataLoader(Samples(), batch_size=4, num_workers=12, persistent_workers=True), seconds=0.014)
