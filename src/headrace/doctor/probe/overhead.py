"""What the hooks cost the training thread, and how the price of a call is found."""

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
    """Hooks add to it what they see of themselves between two readings of the clock: in a run that sleeps, or waits for
    a device, between them they find the CPU's caches cold and take ten times what they take in a loop."""

    def __init__(self) -> None:
        self.measured_ns = 0
        self.conversions = 0
        """Calls of `Tensor.to` and `Tensor.cuda`, most of which copy nothing to the device, and which come by the
        hundred: two readings of the clock would cost as much again."""
        self.price_conversion: Callable[[], float] = lambda: 0.0
        """How to find what one costs, in ns; set by the hook."""
        self._conversion_ns: float | None = None

    def since(self, begun: int) -> None:
        """Something of ours ran from then, by time.monotonic_ns(), until now."""
        self.measured_ns += time.monotonic_ns() - begun

    def leave_out(self, begun: int) -> None:
        """What ran from then until now was a wait for others, and will be counted with what it is a part of."""
        self.measured_ns -= time.monotonic_ns() - begun

    def take(self) -> int:
        """Nanoseconds since the last call."""
        total = max(self.measured_ns, 0)  # what was left out may yet have to be counted
        self.measured_ns -= total
        conversions, self.conversions = self.conversions, 0
        if conversions and self._conversion_ns is None:
            self._conversion_ns = self.price_conversion()
        return total + round(conversions * (self._conversion_ns or 0.0))

    def forget(self) -> None:
        """What was spent so far was another process's."""
        self.conversions = self.measured_ns = 0


def least_ns(call: Callable[[], Any], calls: int, rounds: int = 4) -> float:
    """Of one call, in the least of `rounds`."""
    least = float("inf")
    for _ in range(rounds):
        start = time.perf_counter_ns()
        for _ in range(calls):
            call()
        least = min(least, (time.perf_counter_ns() - start) / calls)
    return least
