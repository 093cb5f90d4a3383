"""Planted: OpenCV shares each filter out among 8 threads in each of two workers, on two cores.

A batch: some 160 filters of small images; a step: 10 ms."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
import torch
from planted import on_two_cores, train
from torch.utils.data import DataLoader, Dataset

EXPECTED = ("threads want to run on 2 cores",)
THREADS = 8


class Blurred(Dataset[Any]):
    def __len__(self) -> int:
        return 8_000

    def __getitem__(self, index: int) -> Any:
        image = np.full((512, 512, 3), index % 256, dtype=np.uint8)
        for _ in range(40):
            image = cv2.GaussianBlur(image, (5, 5), 0)
        return torch.from_numpy(image[:16])


def use_threads(worker: int) -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(THREADS)


if __name__ == "__main__":
    on_two_cores()
    torch.set_num_threads(1)
    train(DataLoader(Blurred(), batch_size=4, num_workers=2, worker_init_fn=use_threads), seconds=0.010)
