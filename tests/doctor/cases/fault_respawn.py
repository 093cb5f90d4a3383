"""Planted: workers are started anew for each epoch, and each then opens its dataset, which takes 150 ms.

A batch: 4 ms; a step: 12 ms; an epoch: 15 steps. persistent_workers=True heals it."""

from __future__ import annotations

import torch
from planted import burn, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("starting workers",)


class Samples(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 4 * 15

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(0.001)
        return torch.full((16,), float(index))


def open_dataset(worker: int) -> None:
    burn(0.150)


if __name__ == "__main__":
    train(DataLoader(Samples(), batch_size=4, num_workers=2, worker_init_fn=open_dataset), seconds=0.012)
