"""`Meter`: makes windows of steps out of the moments at which batches are taken. It reads no clock."""

from __future__ import annotations

import sys
from dataclasses import dataclass

WINDOW_STEPS, WINDOW_S = 4, 0.3
"""A window has so many steps and lasts so long at least."""
SLOW_STEPS, SLOW_S = 2, 2.0
"""Or these, where batches take long."""
PAUSE_TIMES, PAUSE_S = 8, 0.5
"""Work of so many times the steps before it, and this long, is an evaluation or a checkpoint: no part of a step."""


@dataclass(frozen=True)
class Steps:
    """A window: sums over its steps, as in Observation."""

    steps: int
    wall_s: float
    squares_s2: float
    wait_s: float
    lowest_ready: int


class Meter:
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

    def took(self, asked_s: float, came_s: float, ready: int) -> Steps | None:
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
        window = Steps(self._steps, self._wall_s, self._squares_s2, self._wait_s, self._lowest_ready)
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
