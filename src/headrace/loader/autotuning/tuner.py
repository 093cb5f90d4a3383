"""`Tuner`, a loader's setting from pass to pass, and `TunedPass`, which measures one pass for the tuner."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from headrace.loader.autotuning.climber import Climber
from headrace.loader.autotuning.observation import (
    Knob,
    Observation,
    Readings,
    Setting,
    StepMeter,
    TuningBounds,
    readings_since,
)
from headrace.system import available_to_rank, default_threads

T = TypeVar("T")

START_PREFETCH, MOST_PREFETCH = 3, 16
"""Start and upper bound of prefetch. More only evens out variation over more batches, and each batch takes memory."""


class Tuner(Climber):
    """Setting of one loader, from pass to pass: the next pass begins where the last one ended.

    Two passes may report at once from two threads, as passes to a device do; one of the two reports is then dropped. No
    thread waits for the lock, so that a fork in between cannot leave a thread waiting forever.
    """

    def __init__(self, start: Setting, bounds: TuningBounds) -> None:
        super().__init__(start, bounds)
        self._listening = threading.Lock()

    @property
    def is_given(self) -> bool:
        """True if nothing may change."""
        return self.bounds.is_given("threads") and self.bounds.is_given("prefetch")

    def observe(self, seen: Observation) -> None:
        """Take the observation of a pass at `setting`."""
        self._unless_busy(super().observe, seen)

    def refuse_threads(self, most: int) -> None:
        """Record that the system grants no more threads than `most`."""
        self._unless_busy(super().refuse_threads, most)

    def _unless_busy(self, take: Callable[[T], None], report: T) -> None:
        if self._listening.acquire(blocking=False):
            try:
                take(report)
            finally:
                self._listening.release()


def tuner_of(threads: int | None, prefetch: int | None) -> Tuner:
    """Return the tuner for a loader's arguments; None means tuned. Threads start at the maximum, for short runs."""
    most = default_threads() if threads is None else threads  # reading the control groups takes a millisecond
    given: dict[Knob, int | None] = {"threads": threads, "prefetch": prefetch}
    start = Setting(most, START_PREFETCH if prefetch is None else prefetch)
    return Tuner(
        start,
        TuningBounds(
            threads=(1 if threads is None else most, most),
            prefetch=(1, MOST_PREFETCH) if prefetch is None else (prefetch, prefetch),
            left_out=tuple(knob for knob, value in given.items() if value is None),
        ),
    )


class Controls(Protocol):
    """Interface of a tuned pass. The consumer's thread calls it."""

    def readings(self) -> Readings: ...

    def set(self, setting: Setting) -> int | None:
        """Apply a setting. Return how many threads work, which may be fewer; None if the pass has ended."""
        ...


class TunedPass:
    """Measurement of one pass for its tuner, whose setting it follows.

    It has no thread: it runs where the consumer takes batches, a few microseconds each. A loader may have several
    passes at a time; each reports only what it saw at its own setting.
    """

    def __init__(self, tuner: Tuner, controls: Controls) -> None:
        self._tuner = tuner
        self._controls = controls
        self.setting = tuner.setting
        self._meter = StepMeter(self.setting.prefetch + 1)  # the first batches meet cold memory and files
        self._at_begin: Readings | None = None

    def took(self, asked_s: float, came_s: float, ready: int) -> None:
        """Count a batch that was requested at `asked_s` and came at `came_s`, with `ready` other batches waiting."""
        if self._tuner.is_given:
            return
        window = self._meter.took(asked_s, came_s, ready)
        if window is not None and self.setting == self._tuner.setting and self._at_begin is not None:
            since = readings_since(self._at_begin, self._controls.readings())
            self._tuner.observe(Observation(**vars(window), **since, available_bytes=available_to_rank()))
        if self.setting != self._tuner.setting:
            self._follow(ready)
        elif self._meter.begins:
            self._at_begin = self._controls.readings()

    def _follow(self, ready: int) -> None:
        wanted = self._tuner.setting
        threads = self._controls.set(wanted)
        if threads is None:
            return
        if threads < wanted.threads:
            self._tuner.refuse_threads(threads)
        # Ready batches were made at the previous setting, and memory for more batches is new the first time.
        self._meter.restart(1 + ready + max(0, wanted.prefetch - self.setting.prefetch))
        self.setting = self._tuner.setting
