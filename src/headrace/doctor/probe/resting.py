"""The training thread while it is let alone: when it is, and how it goes on."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .rests import Rest, Rests

if TYPE_CHECKING:
    from .training.training import Training

NOBODY = -1
"""No thread's identity."""


class Resting:
    """While it rests, `Training.thread` is nobody's, so that hooks do nothing, and `Training.resting` is the thread."""

    def __init__(self, training: Training) -> None:
        self._training = training
        self._rest: Rest | None = None
        rests = Rests()
        self.observed, self.spent, self._after = rests.observed, rests.spent, rests.after

    def begin_if_due(self, start: int) -> None:
        """The step that began at `start` is the first of a block."""
        training = self._training
        training.write_steps()
        number = training.steps.number
        count = self._after(number)
        if count:
            self._rest = Rest(number, start, count, max(training.steps.optimizers, 1))
            training.thread, training.resting = NOBODY, training.thread

    def optimizer_stepped(self) -> None:
        """In the training thread, which is at rest."""
        begun = time.monotonic_ns()
        rest = self._rest
        if rest is not None:
            rest.optimizers_left -= 1
            if not rest.optimizers_left:
                self.end()
        self._training.costs.since(begun)

    def end(self) -> None:
        """Goes on with what comes, be it in the middle of a rest."""
        rest, self._rest = self._rest, None
        if rest is None:
            return
        training, end = self._training, time.monotonic_ns()
        training.thread, training.resting = training.resting, NOBODY
        training.steps.resume(rest.first + rest.passed, end)
        if training.marks is not None:
            training.marks.begin()
        clock, cost = training.probe.clock, training.writer.take_cost() // 100
        record = ("rest", rest.first, clock.us(rest.start), clock.us(end), rest.passed, cost)
        training.probe.evidence.write(record)

    def forget(self) -> None:
        self._rest = None
