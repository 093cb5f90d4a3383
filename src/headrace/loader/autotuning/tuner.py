"""`Tuner`: a loader's setting from pass to pass; `TunedPass` measures one pass for it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Protocol

from headrace.loader.autotuning.climber import Climber
from headrace.loader.autotuning.observation import Knob, Observation, Setting, StepMeter, StepWindow, TuningBounds
from headrace.system.resources import available_to_rank, default_threads

# -- from feed/tuning/tuner.py: `Tuner`: a loader's setting from pass to pass: what was given stays, what was left out
# is tuned.


START_PREFETCH, MOST_PREFETCH = 3, 16
"""More ahead only evens out what varies over more than so many batches, and each takes memory."""


class Tuner:
    """Belongs to one loader, whose passes tell it what they see; the next one begins where the last one ended.

    Two passes at a time may do so in two threads, as those on their way to a device have their own: what one tells
    while another does is left out. Nobody waits, so that a fork in between leaves nobody waiting for good.
    """

    def __init__(self, start: Setting, bounds: TuningBounds) -> None:
        self._climber = Climber(start, bounds)
        self._listening = threading.Lock()

    @property
    def setting(self) -> Setting:
        """What every pass is to have from now on."""
        return self._climber.setting

    @property
    def bounds(self) -> TuningBounds:
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
        TuningBounds(
            threads=(1, most) if threads is None else (threads, threads),
            prefetch=(1, MOST_PREFETCH) if prefetch is None else (prefetch, prefetch),
            left_out=tuple(knob for knob, value in given if value is None),
        ),
    )


# -- from feed/tuning/tuned_pass.py: `TunedPass`: one pass over an epoch, measured for a tuner and set as it says. It
# has no thread: it works where the
# consumer takes its batches, some microseconds a batch.


@dataclass(frozen=True)
class Readings:
    """Since the pass began: how long the feed waited for a place, and the core's threads for work, over all of them.
    `cpu_s` is this process's and `consumer_cpu_s` the calling thread's, from whenever on; `batch_bytes` is the latest
    batch's."""

    feed_wait_s: float
    idle_s: float
    cpu_s: float
    consumer_cpu_s: float
    batch_bytes: int


class Controls(Protocol):
    """What a tuned pass reads and turns. Used by the consumer's thread."""

    def readings(self) -> Readings: ...

    def set(self, setting: Setting) -> int | None:
        """Returns how many threads work, fewer where the system refuses one; None where the pass has ended."""
        ...


class TunedPass:
    """`setting` is the pass's own, and follows the tuner's. A loader may have several passes at a time: each tells only
    of what it has been set to."""

    def __init__(self, tuner: Tuner, controls: Controls) -> None:
        self._tuner = tuner
        self._controls = controls
        self.setting = tuner.setting
        self._meter = StepMeter(self.setting.prefetch + 1)  # the first batches meet memory and files that are cold
        self._at_begin: Readings | None = None

    def took(self, asked_s: float, came_s: float, ready: int) -> None:
        """The consumer asked for a batch and got it at these times; `ready` lay there when it asked."""
        if self._tuner.is_given:
            return
        window = self._meter.took(asked_s, came_s, ready)
        if window is not None and self.setting == self._tuner.setting and self._at_begin is not None:
            self._tuner.observe(self._observation(window, self._at_begin))
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
        # What was ready tells of the setting before, and memory of more batches is new the first time.
        self._meter.restart(1 + ready + max(0, wanted.prefetch - self.setting.prefetch))
        self.setting = self._tuner.setting

    def _observation(self, window: StepWindow, begin: Readings) -> Observation:
        end = self._controls.readings()
        return Observation(
            steps=window.steps,
            wall_s=window.wall_s,
            squares_s2=window.squares_s2,
            wait_s=window.wait_s,
            feed_wait_s=end.feed_wait_s - begin.feed_wait_s,
            idle_s=end.idle_s - begin.idle_s,
            cpu_s=end.cpu_s - begin.cpu_s,
            consumer_cpu_s=end.consumer_cpu_s - begin.consumer_cpu_s,
            lowest_ready=window.lowest_ready,
            batch_bytes=end.batch_bytes,
            available_bytes=available_to_rank(),
        )
