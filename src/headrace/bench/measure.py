"""One run: a clock, CPU time and memory around an iterator of batches."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from headrace.bench import processes
from headrace.tools.bench.settings import Window


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of one loader took."""

    images: int  # counted, after the warm-up
    wall_s: float
    cpu_s: float  # of the process, its threads and its workers
    first_batch_s: float  # from opening the dataset to holding a batch; imports are not in it
    peak_memory_bytes: int | None  # proportional set size of the process and its workers, at its largest;
    # batches on their way from a worker, which no process has mapped, are not in it

    @property
    def images_per_s(self) -> float:
        return self.images / self.wall_s

    @property
    def cpu_s_per_1000(self) -> float:
        return 1000 * self.cpu_s / self.images


class Meter(Protocol):
    """Where a run's figures come from."""

    def now_s(self) -> float: ...
    def cpu_s(self) -> float: ...
    def memory_bytes(self) -> int | None: ...


class ProcessMeter:
    """Measures this process and its descendants."""

    def now_s(self) -> float:
        return time.perf_counter()

    def cpu_s(self) -> float:
        return processes.cpu_s(processes.tree(os.getpid()))

    def memory_bytes(self) -> int | None:
        return processes.pss_bytes(processes.tree(os.getpid()))


def measure(start: Callable[[], Iterator[int]], window: Window, meter: Meter) -> Run:
    """Run `start()`, an iterator over the sizes of batches, through the window.

    Memory is read outside the counted part, while a batch is held, because reading it walks the page tables.
    """
    began_s = meter.now_s()
    sizes = start()
    next(sizes)
    first_batch_s = meter.now_s() - began_s
    peaks = [meter.memory_bytes(), *_each(sizes, window.warm - 1, meter.memory_bytes)]
    cpu_before_s, before_s = meter.cpu_s(), meter.now_s()
    images = sum(next(sizes) for _ in range(window.counted))
    wall_s, cpu_s = meter.now_s() - before_s, meter.cpu_s() - cpu_before_s
    peaks += _each(sizes, window.tail, meter.memory_bytes)
    return Run(
        images=images,
        wall_s=wall_s,
        cpu_s=cpu_s,
        first_batch_s=first_batch_s,
        peak_memory_bytes=max((peak for peak in peaks if peak is not None), default=None),
    )


def _each(sizes: Iterator[int], count: int, then: Callable[[], int | None]) -> list[int | None]:
    found = []
    for _ in range(count):
        next(sizes)
        found.append(then())
    return found
