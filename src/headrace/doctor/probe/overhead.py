"""Cost of the probe to the user's run, and the rules that bound it."""

from __future__ import annotations

import functools
import time
from typing import Any

from .stages import Stages, Totals

PRICED_CALLS = 16
"""Calls of a hook in each round of a price measurement."""
CONVERSIONS_A_STAGE = 2
"""Calls of `Tensor.to` that cost as much as one stage hook."""
NOBODY = -1
"""Identity that no thread has."""


def nothing(*_: Any) -> None:
    """Do nothing, in place of a hook's function."""


@functools.lru_cache(None)
def price_of_a_stage_ns() -> int:
    """Return the cost of one stage hook, measured once per process."""
    stages = Stages(raise_)
    stages.open()

    def lasts_ns() -> int:
        start = time.perf_counter_ns()
        for _ in range(PRICED_CALLS):
            entered = stages.enter(1)
            if entered is not None:
                entered.leave()
        return time.perf_counter_ns() - start

    return min(lasts_ns() for _ in range(4)) // PRICED_CALLS


def raise_(error: Exception) -> None:
    """Raise the error, to end a price measurement when a stage fails."""
    raise error


class TrainingCost:
    """Cost of the hooks in the training thread.

    Hooks add their own duration between two clock readings. In a run that sleeps or waits between calls, they find the
    CPU caches cold and take ten times as long as in a loop.
    """

    def __init__(self) -> None:
        self.measured_ns = 0
        self.conversions = 0
        """Calls of `Tensor.to` and `Tensor.cuda`.

        Most copy nothing to the device, and they come by the hundred: two clock readings would double their cost.
        """

    def since(self, begun: int) -> None:
        """Add the time from `begun`, by time.monotonic_ns(), until now."""
        self.measured_ns += time.monotonic_ns() - begun

    def take(self) -> int:
        total = max(self.measured_ns, 0)  # a wait that was subtracted may not have been added yet
        self.measured_ns -= total
        conversions, self.conversions = self.conversions, 0
        return total + (conversions * price_of_a_stage_ns() // CONVERSIONS_A_STAGE if conversions else 0)


class ProductionCost:
    """Cost of the probe in a process that produces batches.

    The cost of stage hooks is their number times the price of one, measured once per process, since clock readings
    around each would double the cost. Rarer work is timed directly.
    """

    def __init__(self) -> None:
        self.total_ns = 0

    def add_hooks(self, totals: Totals, together: int) -> None:
        """Add the hooks of a batch, `together` of whose calls had none of their own."""
        self.total_ns += price_of_a_stage_ns() * (sum(total[0] for total in totals.values()) - together)
