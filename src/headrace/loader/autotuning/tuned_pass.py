"""`TunedPass`: measurement of one pass in windows of steps, for the tuner whose setting it follows."""

from __future__ import annotations

from collections.abc import Callable

from headrace.loader.autotuning.tuner import Observation, Setting, Tuner
from headrace.system import available_to_rank

WINDOW_STEPS, WINDOW_S = 4, 0.3
"""Minimum steps and duration of a window."""
PAUSE_TIMES, PAUSE_S = 8, 0.5
"""Minimum work of a pause (an evaluation or a checkpoint), as a multiple of the steps before it, and in seconds. It is
no step."""


class TunedPass:
    """Measurement of one pass, where its consumer takes batches: it has no thread, and costs some microseconds a batch.

    A loader may have several passes at a time; each reports only what it saw at its own setting. `readings` returns the
    pass's counters. `apply` returns how many threads work at a setting, which may be fewer; None if the pass has ended.
    """

    def __init__(
        self,
        tuner: Tuner,
        readings: Callable[[], Observation],
        apply: Callable[[Setting], int | None],
        available_bytes: Callable[[], int | None] = available_to_rank,
    ) -> None:
        self._tuner, self._readings, self._apply, self._available_bytes = tuner, readings, apply, available_bytes
        self.setting = tuner.setting
        self._last_s: float | None = None
        self._at_begin = Observation()
        self._restart(self.setting.prefetch + 1)  # the first batches meet cold memory and files

    def _restart(self, settle: int) -> None:
        """Begin a window after `settle` more batches."""
        self._settle, self._wall_s = settle, 0.0
        self._steps: list[tuple[float, float, int]] = []  # seconds, seconds of waiting, ready batches

    def took(self, asked_s: float, came_s: float, ready: int) -> None:
        """Count a batch that was requested at `asked_s` and came at `came_s`, with `ready` other batches waiting."""
        last_s, self._last_s = self._last_s, came_s
        if last_s is None or not self._tuner.tuned:
            return
        if self._settle > 0:
            self._settle -= 1
        else:
            self._add_step(came_s - last_s, came_s - asked_s, ready)
        if self.setting != self._tuner.setting:
            self._follow(ready)
        elif self._settle == 0 and not self._steps:
            self._at_begin = self._readings()

    def _add_step(self, step_s: float, wait_s: float, ready: int) -> None:
        steps = self._steps
        if steps and step_s - wait_s > max(PAUSE_S, PAUSE_TIMES * self._wall_s / len(steps)):
            self._restart(ready + 1)  # until the batches that the feed made meanwhile are used up
            return
        steps.append((step_s, wait_s, ready))
        self._wall_s += step_s
        if self._wall_s >= WINDOW_S and len(steps) >= WINDOW_STEPS:
            self._restart(0)
            if self.setting == self._tuner.setting:
                self._tuner.observe(self._observation(steps))

    def _observation(self, steps: list[tuple[float, float, int]]) -> Observation:
        walls, waits, ready = zip(*steps, strict=True)
        begin, end = self._at_begin, self._readings()
        return Observation(
            steps=len(steps),
            wall_s=sum(walls),
            squares_s2=sum(step_s * step_s for step_s in walls),
            wait_s=sum(waits),
            lowest_ready=min(ready),
            feed_wait_s=end.feed_wait_s - begin.feed_wait_s,
            idle_s=end.idle_s - begin.idle_s,
            consumer_cpu_s=end.consumer_cpu_s - begin.consumer_cpu_s,
            batch_bytes=end.batch_bytes,
            available_bytes=self._available_bytes(),
        )

    def _follow(self, ready: int) -> None:
        wanted = self._tuner.setting
        threads = self._apply(wanted)
        if threads is None:
            return
        if threads < wanted.threads:
            self._tuner.refuse_threads(threads)
        # Ready batches were made at the previous setting, and memory for more batches is new the first time.
        self._restart(1 + ready + max(0, wanted.prefetch - self.setting.prefetch))
        self.setting = self._tuner.setting
