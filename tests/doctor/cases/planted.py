"""What scripts with planted faults share: a device whose steps take set times, a training loop, and a place for data.

A device step is a sleep that also burns 30 % of a core, as a process does that feeds a GPU; where there is a GPU, it is
kept busy for as long instead."""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from quick_optimizer import Descent

BURNT = 0.3
"""Share of a device step that the training thread computes."""
SLICES = 4
"""Turns of sleeping and burning in one step, so that both are spread over it."""
HASHED = bytes(100_000)
STEPS = 600
"""More than the doctor asks for; without it a script ends after so many."""


Case = Callable[[], None]


def planted(*expected: str, ranks: int = 1, steps: int = 80) -> Callable[[Case], Case]:
    """Mark a case by the words that the doctor says to its user (none where nothing is planted), the number of its
    ranks, and the steps that it takes to see it. fault_suite.py reads these arguments without running the script."""
    return lambda case: case


def train(batches: Any, *, seconds: float | Callable[[Any], float], steps: int = STEPS, model: Any = None) -> None:
    """`steps` optimizer steps over as many epochs as that takes. `seconds` is a step's time on the device, or gives it
    for a batch. `model` is called with one parameter and returns what to multiply; None for the parameter itself."""
    weight = torch.nn.Parameter(torch.zeros(1, device="cuda" if torch.cuda.is_available() else "cpu"))
    parameters = [weight] if model is None else list(model.parameters())
    optimizer = Descent(parameters, lr=0.1)
    for _, batch in zip(range(steps), _endless(batches)):  # noqa: B905 - one of them never ends
        duration = seconds(batch) if callable(seconds) else seconds
        loss = OnDevice.apply(weight if model is None else model(batch), duration).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _endless(batches: Any) -> Iterator[Any]:
    while True:
        yield from batches


class OnDevice(torch.autograd.Function):
    """The identity, which takes a third of `seconds` forward and the rest backward."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, seconds: float) -> torch.Tensor:
        ctx.seconds = seconds
        compute(seconds / 3)
        return tensor.clone()

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None]:
        compute(ctx.seconds * 2 / 3)
        return grads[0], None


def compute(seconds: float) -> None:
    """On the GPU, where there is one, else on what stands in for it."""
    if torch.cuda.is_available():
        torch.cuda._sleep(int(seconds * _cycles_per_s()))
        return
    for _ in range(SLICES):
        time.sleep(seconds * (1 - BURNT) / SLICES)
        burn(seconds * BURNT / SLICES)


@functools.cache
def _cycles_per_s() -> float:
    cycles = 100_000_000
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(cycles)
    start.record()
    torch.cuda._sleep(cycles)
    end.record()
    end.synchronize()
    return cycles / start.elapsed_time(end) * 1000


def burn(seconds: float) -> None:
    """Computes until this thread has had so much CPU time, however long that takes: without the GIL, as decoders do."""
    until = time.thread_time() + seconds
    while time.thread_time() < until:
        hashlib.sha256(HASHED)


def on_two_cores() -> None:
    """Where there are more, this process and its workers do without them."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])


def made(name: str, make: Callable[[Path], None]) -> Path:
    """A file made once and kept for other runs, in $PLANTED_DATA or else the temporary folder."""
    folder = Path(os.environ.get("PLANTED_DATA") or Path(tempfile.gettempdir()) / "planted")
    path = folder / name
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{name}.{os.getpid()}"
        make(unfinished)
        unfinished.rename(path)
    return path
