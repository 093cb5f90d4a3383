"""A loop that waits for its loader, and the same on one batch that is there all the time.

    floor.py [--workers 1] [--real] [--synthetic STEPS] [--truth FILE]

A batch: 60 ms in its worker. A step: 20 ms of sleep; with --real a batch of 6 MB, which copying must not add to, is
read and goes through matrices that stay in the cache: where a step's own tensors come from memory, as those of a large
convolution do, two processes that run the same loop differ by a third on a shared machine. With --synthetic there is no
loader, and so many steps are made. To --truth goes what the script measured itself: of each step, microseconds within
and without `next()`, as JSON."""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from known_work import sleep
from quick_optimizer import Descent
from torch.utils.data import DataLoader, Dataset

BATCH = 8
DECODE_S, COMPUTE_S = 0.060, 0.020


class Matrices(torch.nn.Module):
    """Four times the same eight, of what is left of a batch once it is pooled."""

    def __init__(self) -> None:
        super().__init__()
        self.matrices = torch.nn.Sequential(*[torch.nn.Linear(192, 192) for _ in range(8)])

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.avg_pool2d(images, 4).reshape(-1, 192)
        for _ in range(4):
            rows = self.matrices(rows)
        return rows


class Images(Dataset[torch.Tensor]):
    def __init__(self, side: int) -> None:
        self.side = side

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        sleep(DECODE_S / BATCH)
        return torch.full((3, self.side, self.side), float(index % 7))


def train(batches: Iterable[Any], is_real: bool, truth: list[tuple[float, float]]) -> None:
    model = Matrices()
    optimizer = Descent(model.parameters(), lr=1e-9)
    endless = iter(batches)
    end = time.monotonic_ns()
    while True:
        start = time.monotonic_ns()
        images = next(endless, None)
        if images is None:
            return
        got = time.monotonic_ns()
        loss = model(images).square().mean()
        if not is_real:
            sleep(COMPUTE_S)
        loss.backward()
        try:
            optimizer.step()
        finally:
            before, end = end, time.monotonic_ns()
            truth.append(((got - start) / 1000, (end - before - got + start) / 1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--synthetic", type=int)
    parser.add_argument("--truth", type=Path)
    known = parser.parse_args()
    torch.set_num_threads(1)
    side = 256 if known.real else 16
    batches: Any = DataLoader(Images(side), batch_size=BATCH, num_workers=known.workers)
    if known.synthetic:
        batches = itertools.repeat(torch.ones(BATCH, 3, side, side), known.synthetic)
    truth: list[tuple[float, float]] = []
    try:
        train(batches, known.real, truth)
    finally:
        known.truth.write_text(json.dumps(truth))


if __name__ == "__main__":
    main()
