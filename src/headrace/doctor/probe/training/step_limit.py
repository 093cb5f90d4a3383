"""End of a measured run: the warm-up, the requested steps, and fewer steps if they suffice."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from .steps import WORK

if TYPE_CHECKING:
    from .steps import OptimizerStep

SETTLING_STEPS = 3
"""Warm-up steps beyond those that empty the prefetch queue, for kernel selection, compilation and caching."""
PLAINLY = 0.025
"""Share of the steps below which the data stall is clearly below the bound of an input-bound run."""

FEWEST_REPLAYED = 5
REPLAYED_S = 6.0
"""Seconds of replay for long steps."""
LONGEST_S = 30.0
FEWEST_LONG = 60
"""Seconds after which observation ends, and the minimum steps, since fewer would miss rare events."""


def replayed_steps(most: int, asked: int, step_s: float, room: float = inf) -> int:
    """Return the number of steps of the replay window.

    It is at most the number of observed steps and what fits into a time, but enough for a mean. It is at most the
    `room` in the loop's pass, unless the room is too small: then the window continues in the next pass.
    """
    fitting = most if step_s <= 0 else int(REPLAYED_S / step_s)
    steps = min(most, max(FEWEST_REPLAYED, min(asked, fitting)))
    return steps if room < FEWEST_REPLAYED else int(min(steps, room))


class StepsMeasured(SystemExit):
    """End of the command with status 0, raised in the training thread once the requested steps are measured."""

    def __init__(self) -> None:
        super().__init__(0)


class StepLimit:
    """Count of warm-up and measured steps.

    All ranks with the same settings compute the same number, so that they end after the same step.
    """

    def __init__(self, warmup: int | None, steps: int | None, enough: int = 0) -> None:
        """`warmup` None: steps that empty the prefetch queue, and three more. `steps` None: no end.

        `enough`: measured steps after which a run that hardly waits for data may end; 0: never.
        """
        self.warmup = warmup
        self._steps = steps
        self._prefetched = 0
        self.is_over = False
        self._enough, self.is_enough = enough, False
        self.is_late = False
        """True if time ended the observation."""
        self._lengths: list[int | None] = []
        self._batches = self._waited_ns = self._lasted_ns = self._observed = 0

    def prefetches(self, batches: int) -> None:
        """Count a new DataLoader that may prefetch `batches` batches."""
        self._prefetched = max(self._prefetched, batches)

    def settle(self, number: int, gets: int) -> bool:
        """Count a closed step with `gets` batches, and return True if it settled the warm-up.

        The second step does, since the first also includes batches fetched ahead.
        """
        if self.warmup is not None or number < 1:
            return False
        self.warmup = -(-self._prefetched // max(gets, 1)) + SETTLING_STEPS
        return True

    def lasts(self, batches: int | None) -> None:
        """Count a pass of `batches` batches over a DataLoader; None if unknown."""
        self._lengths.append(batches)

    def observed(self, step: OptimizerStep) -> None:
        """Count a measured, closed step. End the run with it if the run clearly hardly waits for data.

        The run does not end early if a pass ends before the requested steps: the cost of its end is not measured yet.
        Observation of long steps ends once its time is up, but not within an epoch that ends before the requested
        steps.
        """
        self._observed += 1
        self._batches += len(step.gets)
        self._waited_ns += sum(one.end - one.start for one in step.gets)
        self._waited_ns += sum(end - start for kind, start, end in step.spans if kind == WORK)
        self._lasted_ns += (step.end or step.start) - step.start
        if not self._enough or self._steps is None or not self._batches:
            return
        wanted = self._steps * self._batches / self._observed
        lengths = [0 if length is None else length for length in self._lengths]
        is_long = all(length >= wanted for length in lengths)
        if self._observed == self._enough and is_long and self._waited_ns < PLAINLY * self._lasted_ns:
            self._steps, self.is_enough = self._observed, True
        elif self._observed >= FEWEST_LONG and self._lasted_ns >= LONGEST_S * 1e9:
            known = [length for length in self._lengths if length is not None]
            a_step = self._batches / self._observed
            if all(length >= wanted or (length > 0 and self._batches % length < a_step) for length in known):
                self._steps, self._enough, self.is_late = self._observed, 0, True

    def end_after(self, steps: int) -> None:
        """Set the end of the run to `steps` steps in total."""
        self._steps = steps - (self.warmup or 0)

    def is_reached(self, steps: int) -> bool:
        """Return True if `steps` steps are enough."""
        return self._steps is not None and self.warmup is not None and steps >= self.warmup + self._steps
