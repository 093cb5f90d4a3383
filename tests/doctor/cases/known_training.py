"""A training loop whose forward, backward and optimizer take set lengths, and which measures itself."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import known_truth
import torch
from known_truth import stage
from known_work import sleep
from quick_optimizer import QuickOptimizer
from torch.utils.data import DataLoader, default_collate

Parts = dict[str, float]


@dataclass(frozen=True)
class Pace:
    """Seconds of each part of a step; those of forward and backward a micro-batch."""

    forward: float = 0.0
    backward: float = 0.0
    optimizer: float = 0.0
    other: float = 0.0


def arguments(*, workers: int = 2, start: str = "fork", steps: int = 60) -> argparse.Namespace:
    """What every script here takes; the defaults are its own."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=workers)
    parser.add_argument("--start", default=start, choices=["fork", "spawn", "forkserver"])
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--compute", type=float, default=1.0, help="lengthens forward by this factor")
    parser.add_argument("--truth", type=Path, help="folder for what the script measured itself")
    known = parser.parse_args()
    known_truth.begin(known.truth)
    return known


def collate(samples: list[Any]) -> Any:
    with stage("collate"):
        return default_collate(samples)


def loader(
    dataset: Any, known: argparse.Namespace, *, batch_size: int, collate_fn: Callable[[list[Any]], Any] = collate
) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=known.workers,
        multiprocessing_context=known.start if known.workers else None,
        collate_fn=collate_fn,
    )


def train(batches: DataLoader[Any], pace: Pace, *, steps: int, accumulate: int = 1) -> None:
    """`steps` optimizer steps of `accumulate` batches each, over as many passes as that takes."""
    torch.set_num_threads(1)
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = PacedOptimizer([weight], pace.optimizer)
    endless = forever(batches)
    for _ in range(steps):
        parts = Parts()
        for _ in range(accumulate):
            batch = [timed(parts, "data wait", lambda: next(endless))]
            loss = timed(parts, "forward", lambda: paced_forward(weight, pace))
            timed(parts, "backward", loss.backward)
            timed(parts, "other", batch.clear)  # giving back a large one takes its time
        timed(parts, "optimizer", optimizer.step)
        timed(parts, "other", lambda: sleep(pace.other))
        known_truth.step(parts)


def forever(batches: DataLoader[Any]) -> Iterator[Any]:
    while True:
        yield from batches


def timed(parts: Parts, name: str, part: Callable[[], Any]) -> Any:
    start = time.monotonic_ns()
    result = part()
    parts[name] = parts.get(name, 0.0) + (time.monotonic_ns() - start) / 1000
    return result


def paced_forward(weight: torch.Tensor, pace: Pace) -> torch.Tensor:
    sleep(pace.forward)
    return PacedBackward.apply(weight, pace.backward).sum()


class PacedBackward(torch.autograd.Function):
    """The identity, whose backward takes `seconds`."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        sleep(ctx.seconds)
        return grads[0], None


class PacedOptimizer(QuickOptimizer):
    """Changes nothing, in `seconds`."""

    def __init__(self, parameters: list[torch.nn.Parameter], seconds: float) -> None:
        super().__init__(parameters, {})
        self.seconds = seconds

    def step(self, closure: Any = None) -> None:
        sleep(self.seconds)
