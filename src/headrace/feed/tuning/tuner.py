"""`Tuner`: a loader's setting from pass to pass: what was given stays, what was left out is tuned."""

from __future__ import annotations

import threading

from headrace.cores import default_threads
from headrace.feed.tuning.observation import Observation
from headrace.feed.tuning.setting import Bounds, Knob, Setting
from headrace.loader.autotuning.climber import Climber

START_PREFETCH, MOST_PREFETCH = 3, 16
"""More ahead only evens out what varies over more than so many batches, and each takes memory."""


class Tuner:
    """Belongs to one loader, whose passes tell it what they see; the next one begins where the last one ended.

    Two passes at a time may do so in two threads, as those on their way to a device have their own: what one tells
    while another does is left out. Nobody waits, so that a fork in between leaves nobody waiting for good.
    """

    def __init__(self, start: Setting, bounds: Bounds) -> None:
        self._climber = Climber(start, bounds)
        self._listening = threading.Lock()

    @property
    def setting(self) -> Setting:
        """What every pass is to have from now on."""
        return self._climber.setting

    @property
    def bounds(self) -> Bounds:
        return self._climber.bounds

    @property
    def is_given(self) -> bool:
        """Whether nothing may change."""
        return self.bounds.is_given("threads") and self.bounds.is_given("prefetch")

    @property
    def reasons(self) -> dict[str, str]:
        """For each of "threads" and "prefetch" that is tuned, why it is what it is."""
        return self._climber.reasons

    def observe(self, seen: Observation) -> None:
        """What a pass saw at `setting`."""
        if self._listening.acquire(blocking=False):
            try:
                self._climber.observe(seen)
            finally:
                self._listening.release()

    def refuse_threads(self, most: int) -> None:
        """The system gives no more threads than so many."""
        if self._listening.acquire(blocking=False):
            try:
                self._climber.refuse_threads(most)
            finally:
                self._listening.release()

    def restart(self, start: Setting) -> None:
        """Forgets what it knows, and goes on from `start`."""
        self._climber = Climber(start, self.bounds)


def tuner_of(threads: int | None, prefetch: int | None) -> Tuner:
    """For a loader's arguments, None: to be tuned. Threads begin at the most, so that a short run has them all."""
    most = default_threads()
    given: list[tuple[Knob, int | None]] = [("threads", threads), ("prefetch", prefetch)]
    start = Setting(most if threads is None else threads, START_PREFETCH if prefetch is None else prefetch)
    return Tuner(
        start,
        Bounds(
            threads=(1, most) if threads is None else (threads, threads),
            prefetch=(1, MOST_PREFETCH) if prefetch is None else (prefetch, prefetch),
            left_out=tuple(knob for knob, value in given if value is None),
        ),
    )
