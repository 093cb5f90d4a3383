"""Planted: OpenMP's threads of the training process spin after each part of a step, on the cores of its two workers.

A batch: 50 ms of a core's work in each worker; a step: some 5 ms of parallel filters, by two threads on two cores. They
spin on for milliseconds after the last filter, while the training thread waits for the next batch."""

from __future__ import annotations

from typing import Any

import torch
from planted import burn, on_two_cores
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("Threads of the training process spin",)
STEPS = 120


class Burnt(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        burn(0.012)
        return torch.full((16,), float(index))


def one_thread(worker: int) -> None:
    torch.set_num_threads(1)


def train(batches: Any) -> None:
    weight = torch.nn.Parameter(torch.ones(512, 512))
    optimizer = Descent([weight], lr=0.1)
    for batch in batches:
        filtered = weight
        for _ in range(8):
            filtered = filtered.cos()
        loss = filtered.sum() * batch.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    on_two_cores()
    torch.set_num_threads(2)
    train(DataLoader(Burnt(), batch_size=4, num_workers=2, worker_init_fn=one_thread))
