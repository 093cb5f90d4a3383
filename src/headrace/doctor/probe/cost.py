"""What the probe itself costs the processes that make batches."""

from __future__ import annotations

import time

from .stages import Stages, Totals

_PAIRS = 16
_ROUNDS = 4


class Cost:
    """Time of hooks is their number by the cost of one, measured once in each process, since a clock read around each
    would cost as much again; rarer work is measured as thread-CPU time."""

    def __init__(self) -> None:
        self._hook_ns: int | None = None
        self.total_ns = 0

    def add_hooks(self, totals: Totals) -> None:
        if self._hook_ns is None:
            self._hook_ns = measure_hook_ns()
        self.total_ns += self._hook_ns * sum(total[0] for total in totals.values())

    def add_since(self, thread_time_ns: int) -> None:
        self.total_ns += time.thread_time_ns() - thread_time_ns


def measure_hook_ns() -> int:
    """Of one stage entered and left, at the best of a few rounds."""
    stages = Stages()
    stages.categories[0] = "other"
    stages.open()
    best = 1 << 62
    for _ in range(_ROUNDS):
        start = time.monotonic_ns()
        for _ in range(_PAIRS):
            account = stages.enter(0)
            if account is not None:
                account.leave()
        best = min(best, time.monotonic_ns() - start)
    return best // _PAIRS
