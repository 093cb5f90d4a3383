"""Data work in the loop: work of the training thread between a batch and the model.

It begins with a received batch, and ends when the model is called or the next batch is requested: rebatching, casts,
normalisation, `get_batch` without a known loader. If a backward pass or an optimizer comes first, no model was seen,
and the time counts as part of the forward pass.

A loop may fetch the next batch between a forward pass and its backward pass. Then the model call precedes the batch,
and what follows up to the backward pass is work on that batch for the next model call. This call begins a forward pass
that ends when the next batch is requested.
"""

from __future__ import annotations

import time
from math import inf
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable, Optional

from ..stack_sampler import CodeLines, StackSampler, users_frame
from ..stages import nothing
from .steps import AHEAD, WORK

if TYPE_CHECKING:
    from ..evidence_file import Record
    from .steps import StepTimeline

WORTH_SAMPLING_NS = 200_000
"""Minimum duration of sampled work. Lines of shorter work would explain nothing."""
WAITS = ""
"""Kind of an interval that is no work: a prefetched batch waits for the model."""
MOST_CALLS_SHARE, CALLS_ALWAYS_NS = 0.002, 20_000
"""Share of a step that the observation of its calls may cost, and ns that it may cost in any case."""
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
        self.calls = LoopCalls(name)
        self._was_called = False
        """True if the model was called since the last backward pass."""
        self._is_ahead = False
        """True if the current batch is for the forward pass after the current backward pass."""
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

    def begin(self, kind: str, start: int, thread: int, is_training: bool = True) -> None:
        """Begin work: a batch has arrived, or, with kind UNSOURCED, a step without a known source has ended."""
        self.calls.is_evaluating = not is_training
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
        interval, self._is_ahead = self._now, False
        if interval is not None and self._kind != WAITS:
            self._last_ns = 0 if self._kind == AHEAD else end - interval.start
            steps.worked(self._kind, interval.start, end)
        if interval is not None:
            self.drop()

    def called(self, end: int, steps: StepTimeline) -> None:
        """End the work: the model is called. For a batch fetched ahead, its forward pass begins."""
        interval, kind = self._now, self._kind
        self.end(end, steps)
        self._was_called = True
        if interval is not None and kind == WAITS:
            self._now, self._kind = WorkInterval(end, interval.thread), AHEAD

    def interrupt(self, start: int, steps: StepTimeline) -> None:
        """Begin a backward pass or an optimizer. Work since the model call is for the next forward pass."""
        interval, kind, was_called, self._was_called = self._now, self._kind, self._was_called, False
        if interval is not None and kind == WORK and was_called:
            self.end(start, steps)
        if self._now is not None:
            self.drop()
        self._is_ahead |= interval is not None and kind in (WORK, WAITS)

    def resume(self, start: int, thread: int) -> None:
        """Watch for the model again after the interruption, if a batch waits for it."""
        if self._is_ahead:
            self._now, self._kind, self._is_ahead = WorkInterval(start, thread), WAITS, False
            self.watch()

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
        self.calls.forked()
        self._lines.take()

    def cost_ns(self) -> int:
        before, self._told_cost_ns = self._told_cost_ns, self._sampler.cost_ns
        return self._told_cost_ns - before

    def records(self, now: int, now_us: int, is_over: bool) -> list[Record]:
        """Return the records of lines and calls since the last ones, once due."""
        if self._due is None:
            self._due = now + self._pause
        if now < self._due and not is_over:
            return []
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_NS)
        self._due = now + self._pause
        lines = self._lines.take()
        return [*self.calls.records(now_us), *([("loop", now_us, lines)] if lines else ())]


def _never_hangs(*_: Any) -> None:
    """Report no hang: slow work in the loop is expected."""


FEW_CALLS = 16
"""Number of calls per step at an always acceptable cost."""
REST_STEPS = 64
"""Steps that pass unwatched after one in which watching cost too much."""
MOST_TURNS = 8
"""Maximum number of switches to unwatched steps. Each replaces methods of a class, which Python counts."""
MOST_ROWS = 64
"""Maximum number of call sites per record; further calls are counted without a place."""

Place = tuple[str, int, str]
"""File, line and function."""
Row = tuple[str, Optional[Place], bool]
"""Called function, place in user code, and True if it waits for the device."""


class LoopCalls:
    """Calls of one training thread, counted by function and call site.

    The hook sets `watch` and `ignore`, which switch the observation of tensor methods.
    """

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_evaluating = False
        """True if the current batch arrived while autograd was off."""
        self.is_inside = False
        """True during a counted call. Its inner calls do not count."""
        self.rest = 0.0
        """Remaining steps to pass unwatched."""
        self._name = name
        self._rows: dict[Row, list[int]] = {}
        """Number of calls and nanoseconds, by row."""
        self._steps = 0
        """Steps watched since the last record."""
        self._calls = self._cost_ns = 0
        """Calls and cost of the current step."""
        self._since = time.monotonic_ns()
        self._turns = 0

    def add(self, what: str, caller: FrameType, waits: bool, start: int, end: int) -> int:
        """Count a call from `start` to `end`, and return the cost of counting in nanoseconds."""
        frame = users_frame(caller)
        place = None
        if frame is not None:
            code = frame.f_code
            place = (code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name))
        row = (what, place, waits)
        if row not in self._rows and len(self._rows) >= MOST_ROWS:
            row = (what, None, waits)
        counted = self._rows.setdefault(row, [0, 0])
        counted[0] += 1
        counted[1] += end - start
        self._calls += 1
        cost = time.monotonic_ns() - end
        self._cost_ns += cost
        return cost

    def closed(self) -> None:
        """Count a finished step, and stop watching for a while if watching cost too much."""
        calls, cost_ns, self._calls, self._cost_ns = self._calls, self._cost_ns, 0, 0
        since, self._since = self._since, time.monotonic_ns()
        if self.rest:
            self.rest -= 1
            if not self.rest:
                self.watch()
            return
        self._steps += 1
        bound = max(MOST_CALLS_SHARE * (self._since - since), CALLS_ALWAYS_NS)
        if calls > FEW_CALLS and cost_ns > bound:
            self._turns += 1
            self.rest = REST_STEPS if self._turns < MOST_TURNS else inf
            self.ignore()

    def forked(self) -> None:
        self._rows.clear()
        self._steps = self._calls = self._cost_ns = 0
        self.is_inside = self.is_evaluating = False

    def records(self, now_us: int) -> list[Record]:
        """Return the record of calls in steps watched since the last record."""
        if not self._steps:
            return []
        steps, rows, self._steps, self._rows = self._steps, self._rows, 0, {}
        counted = [
            (
                self._name(what),
                -1 if place is None else self._name("{}:{}:{}".format(*place)),
                int(waits),
                calls,
                ns // 1000,
            )
            for (what, place, waits), (calls, ns) in rows.items()
        ]
        return [("calls", now_us, steps, counted)]
