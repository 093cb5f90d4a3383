"""When a run that is only observed is let alone, so that observing it stays cheap. Pure: it is told times."""

from __future__ import annotations

from statistics import median

from .blocks import BLOCK, left_out

MOST_SHARE = 0.01
"""Of a step, that observing may cost,"""
ALWAYS_NS = 100_000
"""and what it may cost at least, however short a step is."""
AIM = 0.2
"""Of that is aimed at: observing costs half as much again as the hooks see of themselves, since the user's code then
finds the caches filled with ours, and what is let pass is not free either (benchmarks/doctor_overhead.py --in-turns).
"""
MOST_HALVINGS = 8


class Rests:
    """Chooses among blocks of steps as many to observe as keep the cost, spread over all of them, within bounds."""

    def __init__(self) -> None:
        self.halvings = 0
        """Of blocks, 1 in 2 to the power of this is observed."""
        self._cost_ns = 0
        self._walls_ns: list[int] = []

    def observed(self, wall_ns: int) -> None:
        """A step was observed that took so long."""
        self._walls_ns.append(wall_ns)

    def spent(self, cost_ns: int) -> None:
        """On steps that were observed."""
        self._cost_ns += cost_ns

    def after(self, number: int) -> int:
        """How many steps to let pass from step `number` on: whole blocks, where one begins with it."""
        if number % BLOCK or not self._walls_ns:
            return 0
        step, cost = median(self._walls_ns), self._cost_ns / len(self._walls_ns)
        self._walls_ns, self._cost_ns = [], 0
        bound = AIM * max(MOST_SHARE * step, ALWAYS_NS)
        self.halvings = 0
        while cost > bound * 2**self.halvings and self.halvings < MOST_HALVINGS:
            self.halvings += 1
        return BLOCK * left_out(number // BLOCK, self.halvings)


class Rest:
    """One, under way. Optimizers' steps are counted in it: as many make a step as in the step before it."""

    __slots__ = ("_count", "_optimizers", "first", "optimizers_left", "start")

    def __init__(self, first: int, start: int, count: int, optimizers: int) -> None:
        """Of `count` steps, of which `first` is the number of the first, from `start` on."""
        self.first = first
        self.start = start
        self._count = count
        self._optimizers = optimizers
        self.optimizers_left = count * optimizers

    @property
    def passed(self) -> int:
        """Steps so far."""
        return self._count - -(-self.optimizers_left // self._optimizers)
