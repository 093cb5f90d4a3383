"""Small trainings with a DataLoader of one kind or another, for `headrace tune`.

    python tunable.py KIND [--workers 0]

A sample sleeps 4 ms, a batch has 2, a step sleeps 4 ms on its device."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from known_work import sleep
from quick_optimizer import Descent
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

SAMPLE_S, STEP_S = 0.004, 0.004
BATCH = 2
MANY = 4000


class Slow(Dataset[torch.Tensor]):
    def __init__(self, length: int = MANY) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> torch.Tensor:
        sleep(SAMPLE_S)
        return torch.full((4,), float(index))


class Stream(IterableDataset[torch.Tensor]):
    """Each worker gives all of it, as many streams do by mistake."""

    def __iter__(self) -> Iterator[torch.Tensor]:
        for index in range(MANY):
            sleep(SAMPLE_S)
            yield torch.full((4,), float(index))


def nothing(worker: int) -> None:
    pass


def own_batches() -> Iterator[torch.Tensor]:
    """A loader of the script's own."""
    for index in range(MANY):
        sleep(SAMPLE_S)
        yield torch.full((BATCH, 4), float(index))


def batches_of(kind: str, workers: int) -> Iterable[torch.Tensor]:
    slow = Slow()
    if kind == "own":
        return own_batches()
    if kind == "iterable":
        return DataLoader(Stream(), batch_size=BATCH, num_workers=workers)
    if kind == "batch-sampler":
        sampler = BatchSampler(SequentialSampler(slow), BATCH, drop_last=False)
        return DataLoader(slow, batch_sampler=sampler, num_workers=workers)
    if kind == "init-fn":
        return DataLoader(slow, batch_size=BATCH, num_workers=workers, worker_init_fn=nothing)
    if kind == "timeout":
        return DataLoader(slow, batch_size=BATCH, num_workers=workers, timeout=60)
    if kind == "epochs":
        return DataLoader(Slow(30 * BATCH), batch_size=BATCH, num_workers=workers)
    if kind == "short":
        return DataLoader(Slow(8 * BATCH), batch_size=BATCH, num_workers=workers)
    return DataLoader(slow, batch_size=BATCH, shuffle=kind == "shuffled", num_workers=workers)


def train(batches: Iterable[torch.Tensor], *, epochs: int, failing: bool = False) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = Descent([weight], 0.0)
    for _ in range(epochs):
        for batch in batches:
            (weight * batch.mean()).sum().backward()
            sleep(STEP_S)
            optimizer.step()
            if failing:
                raise RuntimeError("no such layer: head")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind")
    parser.add_argument("--workers", type=int, default=0)
    known = parser.parse_args()
    torch.set_num_threads(1)
    if known.kind == "no-steps":
        for _ in zip(range(40), batches_of("plain", known.workers), strict=False):
            pass
        return
    if known.kind == "two-loaders":
        evaluation: Any = DataLoader(Slow(2 * BATCH), batch_size=BATCH)
        with torch.no_grad():
            for _ in evaluation:
                pass
    epochs = {"epochs": 100, "short": 1}.get(known.kind, 1)
    train(batches_of(known.kind, known.workers), epochs=epochs, failing=known.kind == "failing")


if __name__ == "__main__":
    main()
