"""A script's own measurement of itself, by its own clock readings, to hold the doctor's against.

Each process appends JSON lines to `FOLDER/PID.jsonl`:

    ["stage", name, wall_us, cpu_us]            what one call took, less the stages within it
    ["step", end_us, {part: us}]                one optimizer step of the training thread
"""

from __future__ import annotations

import functools
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDER = "KNOWN_TRUTH"
"""The environment variable that tells workers, however they are started, where to write."""

_thread = threading.local()
"""`inner`: wall and CPU of the stages within each open one. A worker's queue pickles in a thread of its own."""


def begin(folder: Path | None) -> None:
    """Measures from now on, here and in the processes that this one starts; not at all with None."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[_FOLDER] = str(folder)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Measures one call of a stage, named as the doctor's categories are."""
    if not hasattr(_thread, "inner"):
        _thread.inner = []
    _thread.inner.append([0, 0])
    wall, cpu = time.monotonic_ns(), time.thread_time_ns()
    try:
        yield
    finally:
        cpu, wall = time.thread_time_ns() - cpu, time.monotonic_ns() - wall
        inner = _thread.inner.pop()
        if _thread.inner:
            _thread.inner[-1][0] += wall
            _thread.inner[-1][1] += cpu
        _write("stage", name, (wall - inner[0]) / 1000, (cpu - inner[1]) / 1000)


def step(parts: dict[str, float]) -> None:
    """One optimizer step, which ends now, of which each part took so many microseconds."""
    _write("step", time.monotonic_ns() / 1000, parts)


def _write(*record: object) -> None:
    if _FOLDER in os.environ:
        os.write(_descriptor(os.getpid()), json.dumps(record).encode() + b"\n")


@functools.cache
def _descriptor(pid: int) -> int:
    return os.open(Path(os.environ[_FOLDER]) / f"{pid}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
