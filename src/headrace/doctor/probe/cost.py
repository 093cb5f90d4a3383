"""What the hooks cost the training thread: a price measured once for each kind of call, times the calls, and the time
that writing took as it was."""

from __future__ import annotations

import time
from typing import Any, Callable


def nothing(*_: Any) -> None:
    """Stands for what a hook calls."""


def price_ns(hooked: Callable[[], Any], plain: Callable[[], Any] = nothing, calls: int = 25, rounds: int = 3) -> float:
    """Nanoseconds that one call of `hooked` costs more than one of `plain`: the least of `rounds`, since whatever
    disturbs a round only adds to it."""
    return max(0.0, least_ns(hooked, calls, rounds) - least_ns(plain, calls, rounds))


class Costs:
    """Calls since the last `take`, by kind; hooks count them up themselves, which is cheaper than a call."""

    def __init__(self) -> None:
        self.gets = 0
        self.spans = 0
        self.optimizers = 0
        self.conversions = 0
        """Calls of `Tensor.to` and `Tensor.cuda`, most of which copy nothing to the device."""
        self.marks = 0
        self.measured_ns = 0
        """Work that is timed itself: what is done once a step."""
        self.pricing: dict[str, Callable[[], float]] = {}
        """How to find the price of a kind of call, in nanoseconds; set by the hooks."""
        self._prices: dict[str, float] = {}

    def take(self) -> int:
        """The cost since the last call, in tenths of a microsecond."""
        total = float(self.measured_ns)
        self.measured_ns = 0
        for kind in ("gets", "spans", "optimizers", "conversions", "marks"):
            calls = getattr(self, kind)
            if calls:
                total += calls * self._price(kind)
                setattr(self, kind, 0)
        return round(total / 100)

    def forget(self) -> None:
        """What was spent so far was another process's."""
        self.gets = self.spans = self.optimizers = self.conversions = self.marks = self.measured_ns = 0

    def _price(self, kind: str) -> float:
        price = self._prices.get(kind)
        if price is None:
            start = time.perf_counter_ns()
            find = self.pricing.get(kind)
            price = self._prices[kind] = 0.0 if find is None else find()
            self.measured_ns += time.perf_counter_ns() - start
        return price


def least_ns(call: Callable[[], Any], calls: int, rounds: int = 4) -> float:
    """Of one call, in the least of `rounds`."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter_ns() - start) / calls)
    return least
