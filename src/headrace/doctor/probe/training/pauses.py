"""Pauses in which nothing of the training thread is observed."""

from __future__ import annotations

import time
from typing import Callable

from ..overhead import PauseSchedule
from .state import TrainingState


class PausedTraining:
    """Pauses of observation. Meanwhile no thread is `TrainingThread.observed`, so hooks do nothing.

    A pause counts optimizer steps; a training step has as many of them as the step before the pause.
    """

    def __init__(self, state: TrainingState, take_cost: Callable[[], int]) -> None:
        """`take_cost` returns the probe's cost since the last call, in ns."""
        self._state, self._take_cost = state, take_cost
        schedule = PauseSchedule()
        self.observed, self.spent, self._after = schedule.observed, schedule.spent, schedule.after
        self._first = self._start = 0
        self._count = 0
        """Steps to skip in the current pause; 0 outside a pause."""
        self._optimizers = 1
        self._left = 0
        """Optimizer steps until its end."""

    def begin_if_due(self, start: int) -> None:
        """Begin a pause if the step that began at `start` is the first of a skipped block.

        Call this after the closed steps are written.
        """
        state = self._state
        self._first, self._start = state.steps.number, start
        self._count = self._after(self._first)
        self._optimizers = max(state.steps.optimizers, 1)
        self._left = self._count * self._optimizers
        if self._count:
            state.thread.pause()

    def optimizer_stepped(self) -> None:
        begun = time.monotonic_ns()
        self._left -= 1
        if not self._left:
            self.end()
        self._state.costs.since(begun)

    def end(self) -> None:
        """Resume observation, even in the middle of a pause."""
        if not self._count:
            return
        state, end = self._state, time.monotonic_ns()
        passed = self._count - -(-self._left // self._optimizers)
        self._count = 0
        state.thread.go_on()
        state.work.drop()
        state.steps.resume(self._first + passed, end)
        if state.marks is not None:
            state.marks.begin()
        clock, cost = state.clock, self._take_cost() // 100
        state.evidence.write(("rest", self._first, clock.us(self._start), clock.us(end), passed, cost))
