"""The end of a measured run: warm-up, the steps asked for, and fewer where these have shown enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .steps import WORK

if TYPE_CHECKING:
    from .steps import OptimizerStep

SETTLING_STEPS = 3
"""Warm-up steps beyond those that empty the prefetch queue: kernels are chosen, compiled and cached in them."""
PLAINLY = 0.025
"""Share of the steps below which the wait for data is plainly below the bound from which a run is input-bound."""


class StepsMeasured(SystemExit):
    """End of the command, with status 0, raised in the training thread once the steps asked for were measured."""

    def __init__(self) -> None:
        super().__init__(0)


class StepLimit:
    """Count of warm-up and measured steps.

    Every rank that trains with the same settings comes to the same number, so that all of them end after the same step.
    """

    def __init__(self, warmup: int | None, steps: int | None, enough: int = 0) -> None:
        """`warmup` None: as many steps as empty the prefetch queue, and three more. `steps` None: no end.

        `enough`: measured steps after which a run that hardly waits for data may end; 0 for none.
        """
        self.warmup = warmup
        self._steps = steps
        self._prefetched = 0
        self.is_over = False
        self._enough, self.is_enough = enough, False
        self._lengths: list[int | None] = []
        self._batches = self._waited_ns = self._lasted_ns = self._observed = 0

    def prefetches(self, batches: int) -> None:
        """Count a DataLoader that was begun, whose workers may produce so many batches ahead."""
        self._prefetched = max(self._prefetched, batches)

    def settle(self, number: int, gets: int) -> bool:
        """Count a step that was closed and got so many batches. True where that decided the warm-up.

        The second step does, since the first one has also what a fetcher gets ahead.
        """
        if self.warmup is not None or number < 1:
            return False
        self.warmup = -(-self._prefetched // max(gets, 1)) + SETTLING_STEPS
        return True

    def lasts(self, batches: int | None) -> None:
        """Count a pass over a DataLoader, of so many batches; None where that is not known."""
        self._lengths.append(batches)

    def observed(self, step: OptimizerStep) -> None:
        """Count a measured step that was closed. End the run with it where it has shown that it hardly waits.

        Not where a pass ends before the steps that were asked for: what its end costs has not been seen.
        """
        self._observed += 1
        self._batches += len(step.gets)
        self._waited_ns += sum(one.end - one.start for one in step.gets)
        self._waited_ns += sum(end - start for kind, start, end in step.spans if kind == WORK)
        self._lasted_ns += (step.end or step.start) - step.start
        if self._observed != self._enough or self._steps is None or not self._batches:
            return
        wanted = self._steps * self._batches / self._observed
        is_long = all(length is not None and length >= wanted for length in self._lengths)
        if is_long and self._waited_ns < PLAINLY * self._lasted_ns:
            self._steps, self.is_enough = self._observed, True

    def extend(self, steps: int) -> None:
        """Move the end by so many steps."""
        self._steps = (self._steps or 0) + steps

    def is_reached(self, steps: int) -> bool:
        """Tell whether so many steps are enough."""
        return self._steps is not None and self.warmup is not None and steps >= self.warmup + self._steps
