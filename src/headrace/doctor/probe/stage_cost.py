"""What the probe itself costs the processes that make batches."""

from __future__ import annotations

import time
from typing import Callable

from .stages import Stages, Totals

_CALLS = 16
_ROUNDS = 4


class Cost:
    """Time of hooks is their number by the price of one, measured once in each process, since a clock read around each
    would cost as much again; rarer work is measured as thread-CPU time."""

    def __init__(self) -> None:
        self._price: tuple[int, int] | None = None
        self.total_ns = 0

    def add_hooks(self, totals: Totals, samples: int) -> None:
        if self._price is None:
            self._price = prices_ns()
        stage, sample = self._price
        self.total_ns += stage * sum(total[0] for total in totals.values()) + sample * samples

    def add_since(self, thread_time_ns: int) -> None:
        self.total_ns += time.thread_time_ns() - thread_time_ns


def prices_ns() -> tuple[int, int]:
    """Of one stage, entered and left, and of keeping a sample's stages apart from its batch's."""
    stages = Stages(_raise)
    stages.categories.update({0: "getitem", 1: "other"})
    account = stages.open()

    def stage() -> None:
        entered = stages.enter(1)
        if entered is not None:
            entered.leave()

    def sample() -> None:
        account.begin_part(0)
        account.end_part()

    one = _least_ns(stage)
    return one, max(0, _least_ns(sample) - one)


def _raise(error: Exception) -> None:
    raise error


def _least_ns(call: Callable[[], None]) -> int:
    """Of a few rounds, since whatever disturbs one only adds to it."""
    least = 1 << 62
    for _ in range(_ROUNDS):
        start = time.monotonic_ns()
        for _ in range(_CALLS):
            call()
        least = min(least, time.monotonic_ns() - start)
    return least // _CALLS
