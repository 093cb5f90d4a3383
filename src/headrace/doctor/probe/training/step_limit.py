"""The end of a measured run: warm-up, the steps asked for, and fewer where these have shown enough."""

from __future__ import annotations

from math import ceil, inf, sqrt
from typing import TYPE_CHECKING

from .steps import WORK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .steps import OptimizerStep

SETTLING_STEPS = 3
"""Warm-up steps beyond those that empty the prefetch queue: kernels are chosen, compiled and cached in them."""
PLAINLY = 0.025
"""Share of the steps below which the wait for data is plainly below the bound from which a run is input-bound."""

EARLY_STEPS = 10
"""Replayed at the end of a first epoch that is short, besides those that settle."""
FEWEST_REPLAYED = 5
REPLAYED_S = 6.0
"""Seconds in which long steps are replayed, and as many under load."""
NARROW = 0.03
"""Half of the 95 % confidence interval of a mean step, as a share of it, at which further steps tell nothing new."""
NARROW_AFTER = 60
NARROW_AFTER_S = 10.0
"""Fewer steps, or a shorter time, would miss what is rare."""
LONGEST_S = 30.0
"""Seconds after which as many steps end the observation however far their mean is known."""
BLOCKS = 8
STUDENT = 2.36
"""Student's t for 95 % and as many blocks: steps that follow each other are not independent, means of blocks nearly."""


def replayed_steps(most: int, asked: int, step_s: float, room: float = inf) -> int:
    """Return the steps of the replay window, and of that under load.

    At most as many as were asked to be observed, and as fit into a time; never fewer than a mean bears. No more than
    there is `room` for in the loop's pass, unless that is too little: then the window goes on in the next pass.
    """
    fitting = most if step_s <= 0 else int(REPLAYED_S / step_s)
    steps = min(most, max(FEWEST_REPLAYED, min(asked, fitting)))
    return steps if room < FEWEST_REPLAYED else int(min(steps, room))


def half_width(durations: Sequence[int]) -> float:
    """Return half of the 95 % confidence interval of a mean step, as a share of it, by the means of blocks of steps."""
    length = len(durations) // BLOCKS
    means = [sum(durations[first : first + length]) / length for first in range(0, BLOCKS * length, length)]
    mean = sum(means) / BLOCKS
    variance = sum((one - mean) ** 2 for one in means) / (BLOCKS - 1)
    return STUDENT * sqrt(variance / BLOCKS) / mean if mean else 0.0


def observed_steps(asked: int, step_s: float) -> int:
    """Return the steps that are observed at most, of those asked for, where nothing else ends the observation."""
    return asked if step_s <= 0 else min(asked, max(NARROW_AFTER, ceil(LONGEST_S / step_s)))


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
        self.known_within: float | None = None
        """Where the time ended the observation: half of the confidence interval of its mean step, as a share of it."""
        self._lengths: list[int | None] = []
        self._durations: list[int] = []
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

        Not where a pass ends before the steps that were asked for: what its end costs has not been seen. Where steps
        take long, observation ends once their mean is known closely, or once it has taken its time, and after whole
        epochs if these are short.
        """
        self._observed += 1
        self._durations.append((step.end or step.start) - step.start)
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
        elif self._observed >= NARROW_AFTER and self._lasted_ns >= NARROW_AFTER_S * 1e9:
            self._end_long(wanted)

    def _end_long(self, wanted: float) -> None:
        """End the observation of long steps, not within an epoch that is known to end before all that were asked for.

        Where an epoch's length is not known, only the time ends it.
        """
        is_late, width = self._lasted_ns >= LONGEST_S * 1e9, half_width(self._durations)
        known = [length for length in self._lengths if length is not None]
        a_step = self._batches / self._observed
        is_whole = all(length >= wanted or (length > 0 and self._batches % length < a_step) for length in known)
        if is_whole and (is_late or (width <= NARROW and len(known) == len(self._lengths))):
            self._steps, self._enough = self._observed, 0
            self.known_within = width if width > NARROW else None

    def short_pass(self, gets: int) -> int | None:
        """Return the length of the shortest pass, if it ends before all steps of `gets` batches were observed."""
        known = [length for length in self._lengths if length]
        if not known or self._steps is None or min(known) > ((self.warmup or 0) + self._steps) * max(gets, 1):
            return None
        return min(known)

    def insert(self, steps: int, *, before: int) -> int:
        """Move the end by steps that are made before step `before`, and return how many of them are measured ones.

        During the warm-up that is longer by them, and none is.
        """
        if self.warmup is not None and before < self.warmup:
            self.warmup += steps
            return 0
        self._steps = (self._steps or 0) + steps
        return steps

    def end_after(self, steps: int) -> None:
        """Let the run end with so many steps in all."""
        self._steps = steps - (self.warmup or 0)

    def is_reached(self, steps: int) -> bool:
        """Tell whether so many steps are enough."""
        return self._steps is not None and self.warmup is not None and steps >= self.warmup + self._steps
