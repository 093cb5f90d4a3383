"""The thread that trains, and the pauses in which nothing of it is observed."""

from __future__ import annotations

import time
from threading import get_ident
from typing import TYPE_CHECKING

from ..overhead import NOBODY, PauseSchedule

if TYPE_CHECKING:
    from .training import TrainingObserver


class TrainingThread:
    """The thread that trains: the main one, or else the first other one in which an optimizer steps."""

    __slots__ = ("is_fetching", "observed", "paused")

    def __init__(self, thread: int) -> None:
        self.begin(thread)

    def begin(self, thread: int) -> None:
        self.observed = thread
        """Its identity; nobody's while it is paused, so that hooks do nothing."""
        self.paused = NOBODY
        """Its identity while it is paused."""
        self.is_fetching = False
        """Whether it is in a `next()` or `iter()` of a DataLoader."""

    def pause(self) -> None:
        """Let it alone for a while."""
        self.observed, self.paused = NOBODY, self.observed

    def go_on(self) -> None:
        self.observed, self.paused = self.paused, NOBODY

    @property
    def is_on(self) -> bool:
        """True while a thread is followed, be it paused."""
        return self.observed != NOBODY or self.paused != NOBODY

    def is_its_thread(self) -> bool:
        """Tell whether the calling thread is the training thread, be it paused."""
        return get_ident() in (self.observed, self.paused)

    def is_here(self) -> bool:
        """Tell whether the calling thread is the training thread, and waits for no batch: what it does counts."""
        return get_ident() == self.observed and not self.is_fetching


class PausedTraining:
    """Pauses of the observation: meanwhile nobody is `TrainingThread.observed`, so that hooks do nothing.

    A pause counts optimizers' steps: as many make a step as in the step before it.
    """

    def __init__(self, training: TrainingObserver) -> None:
        self._training = training
        schedule = PauseSchedule()
        self.observed, self.spent, self._after = schedule.observed, schedule.spent, schedule.after
        self._first = self._start = 0
        self._count = 0
        """Steps that pass in the pause under way; 0 while there is none."""
        self._optimizers = 1
        self._left = 0
        """Optimizers' steps until its end."""

    def begin_if_due(self, start: int) -> None:
        """Begin a pause where the step that began at `start` is the first of a block that is left out."""
        training = self._training
        training.closed.write()
        self._first, self._start = training.steps.number, start
        self._count = self._after(self._first)
        self._optimizers = max(training.steps.optimizers, 1)
        self._left = self._count * self._optimizers
        if self._count:
            training.thread.pause()

    def optimizer_stepped(self) -> None:
        """Count an optimizer's step in the training thread, which is paused."""
        begun = time.monotonic_ns()
        self._left -= 1
        if not self._left:
            self.end()
        self._training.costs.since(begun)

    def end(self) -> None:
        """Go on with what comes, be it in the middle of a pause."""
        if not self._count:
            return
        training, end = self._training, time.monotonic_ns()
        passed = self._count - -(-self._left // self._optimizers)
        self._count = 0
        training.thread.go_on()
        training.work.drop()
        training.steps.resume(self._first + passed, end)
        if training.marks is not None:
            training.marks.begin()
        clock, cost = training.clock, training.writer.take_cost() // 100
        training.evidence.write(("rest", self._first, clock.us(self._start), clock.us(end), passed, cost))
