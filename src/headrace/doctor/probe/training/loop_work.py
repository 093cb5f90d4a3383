"""Data work in the loop: work of the training thread between a batch and the model.

It begins with a received batch, and ends when the model is called or the next batch is requested: rebatching, casts,
normalisation, `get_batch` without a known loader. If a backward pass or an optimizer comes first, no model was seen,
and the time counts as part of the forward pass.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from ..stack_sampler import CodeLines, StackSampler
from ..stages import nothing

if TYPE_CHECKING:
    from ..evidence_file import Record
    from .steps import StepTimeline

WORTH_SAMPLING_NS = 200_000
"""Minimum duration of sampled work. Lines of shorter work would explain nothing."""
_PAUSE_NS, _LONGEST_PAUSE_NS = 1_000_000_000, 60_000_000_000
"""First and maximum interval between two records of lines."""


class WorkInterval:
    """Work in progress: its start and thread, as `StackSampler` expects."""

    __slots__ = ("start", "thread")

    def __init__(self, start: int, thread: int) -> None:
        self.start = start
        self.thread = thread


class LoopWork:
    """Work of one training thread between its batches and its model, with sampled lines.

    The hook sets `watch` and `ignore`, which begin and end the watch for a model call.
    """

    def __init__(self, name: Callable[[str], int], failed: Callable[[Exception], None]) -> None:
        """`name` returns a text's number in the evidence; `failed` is called once if sampling becomes impossible."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_hooked = False
        """True if model calls are observed."""
        self._lines = CodeLines(name)
        self._sampler = StackSampler(self._lines.add, _never_hangs, failed)
        self._now: WorkInterval | None = None
        self._before: WorkInterval | None = None
        self._kind = ""
        self._last_ns = 0
        self._told_cost_ns = 0
        self._pause = _PAUSE_NS
        self._due: int | None = None

    @property
    def is_under_way(self) -> bool:
        return self._now is not None

    def starts(self, thread: int) -> None:
        """Sample the lines of the program's start, up to the first pass over a loader."""
        self._before = WorkInterval(time.monotonic_ns(), thread)
        self._sampler.begin(self._before)

    def started(self, now_us: int) -> list[Record]:
        """End the program's start, and return the record of its lines."""
        interval, self._before = self._before, None
        if interval is None:
            return []
        self._sampler.end(interval, time.monotonic_ns() - interval.start)
        return [("before", now_us, self._lines.take())]

    def begin(self, kind: str, start: int, thread: int) -> None:
        """Begin work: a batch has arrived, or, with kind UNSOURCED, a step without a known source has ended."""
        if not self.is_hooked:
            return
        is_new = self._now is None
        self._now, self._kind = WorkInterval(start, thread), kind
        if is_new:
            self.watch()
        if self._last_ns >= WORTH_SAMPLING_NS:
            self._sampler.begin(self._now)

    def end(self, end: int, steps: StepTimeline) -> None:
        """End the work: the model is called, or another batch is requested."""
        interval = self._now
        if interval is not None:
            self._last_ns = end - interval.start
            steps.worked(self._kind, interval.start, end)
            self.drop()

    def drop(self) -> None:
        """Discard the work in progress: no model was seen."""
        interval, self._now = self._now, None
        if interval is not None:
            self.ignore()
            self._sampler.end(interval, time.monotonic_ns() - interval.start)

    def restart(self, start: int) -> None:
        """Move the start of the work to now: the time before was the probe's own."""
        if self._now is not None:
            self._now.start = start

    def stop(self) -> None:
        """End the work and the sampling thread, which restarts with the next work worth sampling."""
        self.drop()
        self._sampler.stop()

    def forking(self) -> None:
        """Stop the sampling thread before a fork."""
        self._sampler.stop()

    def forked(self) -> None:
        self._before = None
        self.drop()
        self._lines.take()

    def cost_ns(self) -> int:
        before, self._told_cost_ns = self._told_cost_ns, self._sampler.cost_ns
        return self._told_cost_ns - before

    def records(self, now: int, now_us: int, is_over: bool) -> list[Record]:
        """Return the record of lines since the last one, once due."""
        if self._due is None:
            self._due = now + self._pause
        if now < self._due and not is_over:
            return []
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_NS)
        self._due = now + self._pause
        lines = self._lines.take()
        return [("loop", now_us, lines)] if lines else []


def _never_hangs(*_: Any) -> None:
    """Report no hang: slow work in the loop is expected."""
