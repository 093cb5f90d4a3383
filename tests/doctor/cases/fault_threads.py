"""Planted: each of two workers computes with 8 threads of torch's, on two cores.

A batch: some 200 filters of a small image, each shared out among 8 threads that wait for one another; a step: 10 ms."""

from __future__ import annotations

import torch
from planted import on_two_cores, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("threads want to run on 2 cores",)
THREADS = 8


class Filtered(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> torch.Tensor:
        image = torch.full((512, 512), float(index))
        for _ in range(50):
            image = image.cos()
        return image[:16]


def use_threads(worker: int) -> None:
    torch.set_num_threads(THREADS)


if __name__ == "__main__":
    on_two_cores()
    torch.set_num_threads(1)
    train(DataLoader(Filtered(), batch_size=4, num_workers=2, worker_init_fn=use_threads), seconds=0.010)
