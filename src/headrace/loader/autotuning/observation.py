"""Measurement of steps at one setting."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

WINDOW_STEPS, WINDOW_S = 4, 0.3
"""Minimum steps and duration of a window."""
SLOW_STEPS, SLOW_S = 2, 2.0
"""Minimum steps and duration of a window if batches take long."""
PAUSE_TIMES, PAUSE_S = 8, 0.5
"""Minimum work of a pause (an evaluation or a checkpoint), as a multiple of the steps before it, and in seconds. It is
no step."""


@dataclass(frozen=True)
class StepWindow:
    """Sums over steps. A step lasts from one batch's arrival to the next: the consumer's work plus its wait."""

    steps: int = 0
    wall_s: float = 0.0
    squares_s2: float = 0.0
    """Sum of the squared step times."""
    wait_s: float = 0.0
    """Consumer's wait for batches. High: the feed is too slow."""
    lowest_ready: int = sys.maxsize
    """Lowest number of ready batches at any request."""


class StepMeter:
    """Meter of step windows, called where batches are taken. It leaves out batches promised before a change."""

    def __init__(self, settle: int) -> None:
        self._last_s: float | None = None
        self.restart(settle)

    @property
    def begins(self) -> bool:
        """True if a window begins at the latest batch."""
        return self._settle == 0 and self._window.steps == 0

    def restart(self, settle: int) -> None:
        """Begin a window after `settle` more batches."""
        self._settle = settle
        self._window = StepWindow()

    def took(self, asked_s: float, came_s: float, ready: int) -> StepWindow | None:
        """Count a batch that was requested at `asked_s` and came at `came_s`, with `ready` other batches waiting.

        Return the window that the batch ends, if any. The next window begins there.
        """
        last_s, self._last_s = self._last_s, came_s
        if last_s is None:
            return None
        if self._settle > 0:
            self._settle -= 1
            return None
        before, step_s, work_s = self._window, came_s - last_s, asked_s - last_s
        if before.steps >= 1 and work_s > max(PAUSE_S, PAUSE_TIMES * before.wall_s / before.steps):
            self.restart(ready + 1)  # until the batches that the feed made meanwhile are used up
            return None
        window = self._window = StepWindow(
            steps=before.steps + 1,
            wall_s=before.wall_s + step_s,
            squares_s2=before.squares_s2 + step_s * step_s,
            wait_s=before.wait_s + (came_s - asked_s),
            lowest_ready=min(before.lowest_ready, ready),
        )
        slow = window.wall_s >= SLOW_S and window.steps >= SLOW_STEPS
        if not slow and (window.wall_s < WINDOW_S or window.steps < WINDOW_STEPS):
            return None
        self._window = StepWindow()
        return window


@dataclass(frozen=True)
class Readings:
    """Counters of a pass. Times count from an arbitrary zero."""

    feed_wait_s: float
    """Wait of the feed for a free place. High: the feed could do more."""
    idle_s: float
    """Wait of the core's threads for work, summed over threads."""
    cpu_s: float
    consumer_cpu_s: float
    """CPU time of the thread that takes the batches; `cpu_s` is the process's CPU time."""
    batch_bytes: int


_TIMES = ("feed_wait_s", "idle_s", "cpu_s", "consumer_cpu_s")


def readings_since(begin: Readings, end: Readings) -> dict[str, Any]:
    """Return the time elapsed between two readings by counter, and the latest bytes of a batch."""
    return {name: getattr(end, name) - getattr(begin, name) for name in _TIMES} | {"batch_bytes": end.batch_bytes}


@dataclass(frozen=True, kw_only=True)
class Observation(StepWindow, Readings):
    """Steps at one setting, with the counters of the feed and the process over the same time."""

    available_bytes: int | None
    """Memory that this process could still take; None if unknown."""

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
        """Cores that the process used, on average."""
        return self.cpu_s / self.wall_s

    def busy_threads(self, threads: int) -> float:
        """Return how many of `threads` threads had work, on average."""
        return max(0.0, threads - self.idle_s / self.wall_s)

    def joined(self, later: Observation) -> Observation:
        """Return the sum of two observations at the same setting."""
        sums = ("steps", "wall_s", "squares_s2", "wait_s", *_TIMES)
        return Observation(
            **{name: getattr(self, name) + getattr(later, name) for name in sums},
            lowest_ready=min(self.lowest_ready, later.lowest_ready),
            batch_bytes=max(self.batch_bytes, later.batch_bytes),
            available_bytes=later.available_bytes,
        )


Knob: TypeAlias = Literal["threads", "prefetch"]
KNOBS: tuple[Knob, ...] = ("threads", "prefetch")


@dataclass(frozen=True)
class Setting:
    """Setting of the knobs: the core's working `threads`, and `prefetch`, batches in flight or ready."""

    threads: int
    prefetch: int

    def of(self, knob: Knob) -> int:
        return self.threads if knob == "threads" else self.prefetch


@dataclass(frozen=True)
class TuningBounds:
    """Lower and upper bound of each knob, inclusive. A knob with equal bounds never changes."""

    threads: tuple[int, int]
    prefetch: tuple[int, int]
    left_out: tuple[Knob, ...] = ()
    """Knobs that the user left out, whatever their bounds: on one core, one thread is not the user's choice."""

    def of(self, knob: Knob) -> tuple[int, int]:
        return self.threads if knob == "threads" else self.prefetch

    def is_given(self, knob: Knob) -> bool:
        least, most = self.of(knob)
        return least == most

    @property
    def most(self) -> Setting:
        return Setting(self.threads[1], self.prefetch[1])
