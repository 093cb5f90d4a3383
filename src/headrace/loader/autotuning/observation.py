"""Steps measured at one setting."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

# -- from feed/tuning/meter.py: `Meter`: makes windows of steps out of the moments at which batches are taken. It
# reads no clock.


WINDOW_STEPS, WINDOW_S = 4, 0.3
"""A window has so many steps and lasts so long at least."""
SLOW_STEPS, SLOW_S = 2, 2.0
"""Or these, where batches take long."""
PAUSE_TIMES, PAUSE_S = 8, 0.5
"""Work of so many times the steps before it, and this long, is an evaluation or a checkpoint: no part of a step."""


@dataclass(frozen=True)
class StepWindow:
    """A window: sums over its steps, as in Observation."""

    steps: int
    wall_s: float
    squares_s2: float
    wait_s: float
    lowest_ready: int


class StepMeter:
    """Give it each batch that is taken; it leaves out those that were promised before a change."""

    def __init__(self, settle: int) -> None:
        self._last_s: float | None = None
        self._lowest_ready = sys.maxsize
        self.restart(settle)

    @property
    def begins(self) -> bool:
        """Whether the batch that came last is where a window begins."""
        return self._settle == 0 and self._steps == 0

    def restart(self, settle: int) -> None:
        """A window begins after `settle` more batches."""
        self._settle = settle
        self._clear()

    def took(self, asked_s: float, came_s: float, ready: int) -> StepWindow | None:
        """A batch was asked for and came at these times; `ready` lay there when it was asked for. Returns the window
        that it ends; the next one begins where this one ends."""
        last_s, self._last_s = self._last_s, came_s
        if last_s is None:
            return None
        if self._settle > 0:
            self._settle -= 1
            return None
        if self._is_pause(asked_s - last_s):
            self.restart(ready + 1)  # until those are used up that the feed has made meanwhile
            return None
        step_s = came_s - last_s
        self._steps += 1
        self._wall_s += step_s
        self._squares_s2 += step_s * step_s
        self._wait_s += came_s - asked_s
        self._lowest_ready = min(self._lowest_ready, ready)
        if not self._is_full():
            return None
        window = StepWindow(self._steps, self._wall_s, self._squares_s2, self._wait_s, self._lowest_ready)
        self._clear()
        return window

    def _is_pause(self, work_s: float) -> bool:
        return self._steps >= 1 and work_s > PAUSE_S and work_s > PAUSE_TIMES * self._wall_s / self._steps

    def _is_full(self) -> bool:
        if self._wall_s >= SLOW_S and self._steps >= SLOW_STEPS:
            return True
        return self._wall_s >= WINDOW_S and self._steps >= WINDOW_STEPS

    def _clear(self) -> None:
        self._steps = 0
        self._wall_s = self._squares_s2 = self._wait_s = 0.0
        self._lowest_ready = sys.maxsize


# -- from feed/tuning/observation.py: `Observation`: some steps in a row, measured where the consumer takes its
# batches.


@dataclass(frozen=True)
class Observation:
    """A step is from one batch's arrival to the next one's: the consumer's work, and its wait. Sums over `steps`.

    `wait_s` high: the feed is too slow. `feed_wait_s` high: all places are filled, and the feed could do more.
    `idle_s` is what the core's working threads waited for something to do, over all of them. `cpu_s` is the process's
    CPU time, and `consumer_cpu_s` that of the thread which takes the batches. `lowest_ready` is the least number of
    batches that lay ready when one was asked for.
    """

    steps: int
    wall_s: float
    squares_s2: float
    """The sum of each step's squared time."""
    wait_s: float
    feed_wait_s: float
    idle_s: float
    cpu_s: float
    consumer_cpu_s: float
    lowest_ready: int
    batch_bytes: int
    available_bytes: int | None
    """Memory that this process could still take; None: not known."""

    @property
    def step_s(self) -> float:
        return self.wall_s / self.steps

    @property
    def error_s(self) -> float:
        """Standard error of the mean step."""
        if self.steps < 2:
            return self.step_s
        variance = max(0.0, self.squares_s2 / self.steps - self.step_s**2)
        return math.sqrt(variance / (self.steps - 1))

    @property
    def wait_share(self) -> float:
        return self.wait_s / self.wall_s

    @property
    def feed_wait_share(self) -> float:
        return self.feed_wait_s / self.wall_s

    @property
    def cores(self) -> float:
        """How many the process used, on average."""
        return self.cpu_s / self.wall_s

    def busy_threads(self, threads: int) -> float:
        """How many of so many threads had something to do, on average."""
        return max(0.0, threads - self.idle_s / self.wall_s)

    def joined(self, later: Observation) -> Observation:
        """Of both, made at the same setting."""
        return Observation(
            steps=self.steps + later.steps,
            wall_s=self.wall_s + later.wall_s,
            squares_s2=self.squares_s2 + later.squares_s2,
            wait_s=self.wait_s + later.wait_s,
            feed_wait_s=self.feed_wait_s + later.feed_wait_s,
            idle_s=self.idle_s + later.idle_s,
            cpu_s=self.cpu_s + later.cpu_s,
            consumer_cpu_s=self.consumer_cpu_s + later.consumer_cpu_s,
            lowest_ready=min(self.lowest_ready, later.lowest_ready),
            batch_bytes=max(self.batch_bytes, later.batch_bytes),
            available_bytes=later.available_bytes,
        )


# -- from feed/tuning/setting.py: What may be set, and between which bounds.


Knob: TypeAlias = Literal["threads", "prefetch"]
KNOBS: tuple[Knob, ...] = ("threads", "prefetch")


@dataclass(frozen=True)
class Setting:
    """`threads` of the core that work; `prefetch` batches under way or ready beyond the consumer's."""

    threads: int
    prefetch: int

    def of(self, knob: Knob) -> int:
        return self.threads if knob == "threads" else self.prefetch

    def turned(self, knob: Knob, value: int) -> Setting:
        return replace(self, threads=value) if knob == "threads" else replace(self, prefetch=value)


@dataclass(frozen=True)
class TuningBounds:
    """Least and most of each, both included. Where they are equal, the value is given, or all that there is, and is
    never changed."""

    threads: tuple[int, int]
    prefetch: tuple[int, int]
    left_out: tuple[Knob, ...] = ()
    """By the user, whatever the bounds: on one core nobody has given that there is one thread."""

    def of(self, knob: Knob) -> tuple[int, int]:
        return self.threads if knob == "threads" else self.prefetch

    def is_given(self, knob: Knob) -> bool:
        least, most = self.of(knob)
        return least == most

    @property
    def most(self) -> Setting:
        return Setting(self.threads[1], self.prefetch[1])
