"""Cost of the probe to the user's run, and the rules that keep it small."""

from __future__ import annotations

import time
from statistics import median
from typing import Any, Callable

from .evidence_file import BLOCK, left_out
from .stages import Stages, Totals

PRICED_CALLS = 16
"""Calls of a hook, in each round of finding its price."""
MOST_SAMPLE_SHARE = 0.02
"""Share of the time of batch production that timing samples one by one may take."""
FIRST_BATCHES = 20
"""Batches that are timed by sample in any case: of a short run, all."""
MOST_BETWEEN = 500
"""Batches between two that are timed by sample: however short samples are, some are timed one by one."""
MOST_STEP_SHARE = 0.01
"""Share of a step that observing may cost,"""
ALWAYS_NS = 100_000
"""and what it may cost at least, however short a step is."""
AIM = 0.2
"""Share of these bounds that is aimed at: observing costs half as much again as the hooks see of themselves, since the
user's code then finds the caches filled with ours, and steps that pass unobserved are not free either
(benchmarks/doctor_overhead.py --in-turns)."""
MOST_HALVINGS = 8
NOBODY = -1
"""No thread's identity."""


def nothing(*_: Any) -> None:
    """Stand for what a hook calls."""


def least_ns(call: Callable[[], Any], calls: int, rounds: int = 4) -> float:
    """Return the nanoseconds of one call, in the fastest of `rounds`."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter_ns() - start) / calls)
    return least


def price_ns(hooked: Callable[[], Any], plain: Callable[[], Any] = nothing, calls: int = 25, rounds: int = 3) -> float:
    """Return the nanoseconds that one call of `hooked` costs more than one of `plain`.

    It is the least of `rounds`, since whatever disturbs a round only adds to it.
    """
    return max(0.0, least_ns(hooked, calls, rounds) - least_ns(plain, calls, rounds))


def price_of_a_stage_ns() -> int:
    """Return the nanoseconds of entering and leaving a stage."""
    stages = Stages(raise_)
    stages.open()

    def stage() -> None:
        entered = stages.enter(1)
        if entered is not None:
            entered.leave()

    return int(least_ns(stage, PRICED_CALLS))


def raise_(error: Exception) -> None:
    """Raise it: for stages whose failure ends a measurement of ours."""
    raise error


class TrainingCost:
    """Cost of the hooks in the training thread.

    They add what they see of themselves between two readings of the clock: in a run that sleeps, or waits for a device,
    between them they find the CPU's caches cold and take ten times what they take in a loop.
    """

    def __init__(self) -> None:
        self.measured_ns = 0
        self.conversions = 0
        """Calls of `Tensor.to` and `Tensor.cuda`, most of which copy nothing to the device, and which come by the
        hundred: two readings of the clock would cost as much again."""
        self.price_conversion: Callable[[], float] = lambda: 0.0
        """How to find what one costs, in ns; set by the hook."""
        self._conversion_ns: float | None = None

    def since(self, begun: int) -> None:
        """Add the time from `begun`, by time.monotonic_ns(), until now."""
        self.measured_ns += time.monotonic_ns() - begun

    def take(self) -> int:
        """Return the nanoseconds since the last call."""
        total = max(self.measured_ns, 0)  # a wait that was left out may yet have to be counted
        self.measured_ns -= total
        conversions, self.conversions = self.conversions, 0
        if conversions and self._conversion_ns is None:
            self._conversion_ns = self.price_conversion()
        return total + round(conversions * (self._conversion_ns or 0.0))


class ProductionCost:
    """Cost of the probe in a process that produces batches.

    The time of stages' hooks is their number by the price of one, measured once in each process, since a clock read
    around each would cost as much again; rarer work is measured as it is.
    """

    def __init__(self, price_sample: Callable[[], int] = lambda: 0) -> None:
        """`price_sample` returns what timing a sample by itself costs in all."""
        self._price_sample = price_sample
        self._price: tuple[int, int] | None = None
        self.total_ns = 0

    def add_hooks(self, totals: Totals, samples: int, together: int = 0) -> None:
        """Add the hooks of a batch: so many samples timed alone, so many more together, which count as a call each."""
        stage, sample = self._prices()
        self.total_ns += stage * (sum(total[0] for total in totals.values()) - together) + sample * samples

    def samples_ns(self, samples: int) -> int:
        """Return what timing so many samples one by one costs."""
        return sum(self._prices()) * samples

    def _prices(self) -> tuple[int, int]:
        if self._price is None:
            stage = price_of_a_stage_ns()
            self._price = stage, max(0, self._price_sample() - stage)
        return self._price


class SampleTimingPace:
    """Choice of the batches that are timed sample by sample.

    All are, where that costs little of their production, and as few as keep it little where samples are short: the
    others are timed as a whole. A batch that took long makes the next one be timed by sample again.
    """

    def __init__(self) -> None:
        self._made = 0
        self._left = 0

    def is_due(self) -> bool:
        """Tell whether the next batch is to be timed by sample."""
        return self._made < FIRST_BATCHES or self._left <= 0

    def made(self, wall_ns: int, price_ns: int, is_by_sample: bool) -> None:
        """Count a batch that took so long; to time it by sample costs `price_ns`."""
        self._made += 1
        usual = min(MOST_BETWEEN, int(price_ns / (MOST_SAMPLE_SHARE * max(wall_ns, 1))))
        self._left = usual if is_by_sample else min(self._left - 1, usual)


class PauseSchedule:
    """Choice of the blocks of steps that are observed: as many as keep the mean cost of all steps within bounds.

    Pure: it is told times.
    """

    def __init__(self) -> None:
        self.halvings = 0
        """Of blocks, 1 in 2 to the power of this is observed."""
        self._cost_ns = 0
        self._walls_ns: list[int] = []

    def observed(self, wall_ns: int) -> None:
        """Count an observed step that took so long."""
        self._walls_ns.append(wall_ns)

    def spent(self, cost_ns: int) -> None:
        self._cost_ns += cost_ns

    def after(self, number: int) -> int:
        """Return how many steps to let pass from step `number` on: whole blocks, where one begins with it."""
        if number % BLOCK or not self._walls_ns:
            return 0
        step, cost = median(self._walls_ns), self._cost_ns / len(self._walls_ns)
        self._walls_ns, self._cost_ns = [], 0
        bound = AIM * max(MOST_STEP_SHARE * step, ALWAYS_NS)
        self.halvings = 0
        while cost > bound * 2**self.halvings and self.halvings < MOST_HALVINGS:
            self.halvings += 1
        return BLOCK * left_out(number // BLOCK, self.halvings)
