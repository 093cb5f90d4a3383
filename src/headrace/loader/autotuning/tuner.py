"""`TunedPass`: one pass over an epoch, measured for a tuner and set as it says. It has no thread: it works where the
consumer takes its batches, some microseconds a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headrace.feed.tuning.observation import Observation
from headrace.feed.tuning.setting import Setting
from headrace.feed.tuning.tuner import Tuner
from headrace.loader.autotuning.observation import Meter, Steps
from headrace.system.resources import available_to_rank


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
        self._meter = Meter(self.setting.prefetch + 1)  # the first batches meet memory and files that are cold
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

    def _observation(self, window: Steps, begin: Readings) -> Observation:
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
