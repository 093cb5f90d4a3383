"""What the probe itself costs the processes that make batches."""

from __future__ import annotations

import time
from typing import Callable

from .overhead import least_ns
from .stages import Stages, Totals

CALLS = 16
"""Of a hook, in each round of finding its price."""


class Cost:
    """Time of the hooks of stages is their number by the price of one, measured once in each process, since a clock
    read around each would cost as much again; rarer work is measured as it is."""

    def __init__(self, price_sample: Callable[[], int] = lambda: 0) -> None:
        """`price_sample` gives what timing a sample by itself costs in all."""
        self._price_sample = price_sample
        self._price: tuple[int, int] | None = None
        self.total_ns = 0

    def add_hooks(self, totals: Totals, samples: int, together: int = 0) -> None:
        """Of a batch of which so many samples were timed, and so many more together, which count as a call each."""
        stage, sample = self._prices()
        self.total_ns += stage * (sum(total[0] for total in totals.values()) - together) + sample * samples

    def samples_ns(self, samples: int) -> int:
        """What timing so many samples one by one costs."""
        return sum(self._prices()) * samples

    def _prices(self) -> tuple[int, int]:
        if self._price is None:
            stage = price_of_a_stage_ns()
            self._price = stage, max(0, self._price_sample() - stage)
        return self._price

    def add_ns(self, spent: int) -> None:
        """What was seen to be spent."""
        self.total_ns += spent

    def add_since(self, thread_time_ns: int) -> None:
        self.total_ns += time.thread_time_ns() - thread_time_ns


def price_of_a_stage_ns() -> int:
    """Entered and left."""
    stages = Stages(raise_)
    stages.categories.update({0: "getitem", 1: "other"})
    stages.open()

    def stage() -> None:
        entered = stages.enter(1)
        if entered is not None:
            entered.leave()

    return int(least_ns(stage, CALLS))


def raise_(error: Exception) -> None:
    raise error
