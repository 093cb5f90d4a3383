"""Work of the training thread between a batch and the model: data work in the loop.

It begins when a batch is in hand, and ends when the model is called or the next batch is asked for: rebatching, casts,
normalising, `get_batch` without a loader that is known. What ends otherwise, at a backward pass or an optimizer, showed
no model, and counts as before: as a part of the forward pass.

A loop may fetch the next batch between a forward pass and its backward pass. Then the model was called before the batch
came, and what follows up to the backward pass is work on that batch, for the next call of the model. That call begins a
forward pass, which the next batch that is asked for ends.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

from ..overhead import nothing
from ..stack_sampler import CodeLines, Stack, StackSampler
from .loop_calls import LoopCalls
from .steps import AHEAD, WORK

if TYPE_CHECKING:
    from ..evidence_file import Record
    from .steps import StepTimeline

WORTH_SAMPLING_NS = 200_000
"""Work that is shorter than this is not sampled: its lines would explain nothing."""
WAITS = ""
"""Kind of what is no work: a batch fetched ahead waits for the model."""
_PAUSE_NS, _LONGEST_PAUSE_NS = 1_000_000_000, 60_000_000_000
"""Between two records of lines, at first and at most."""


class WorkInterval:
    """Work that is under way: since when, and in which thread, as a `StackSampler` asks."""

    __slots__ = ("start", "thread")

    def __init__(self, start: int, thread: int) -> None:
        self.start = start
        self.thread = thread


class LoopWork:
    """Work of one training thread between its batches and its model, and the lines that were seen at it.

    `watch` and `ignore` are the hook's: they begin and end the look-out for a call of the model.
    """

    def __init__(self, name: Callable[[str], int], failed: Callable[[Exception], None]) -> None:
        """`name` returns a text's number in the evidence; `failed` is told once that no line can be seen."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_hooked = False
        """Whether calls of the model are seen."""
        self.calls = LoopCalls(name)
        self._was_called = False
        """Whether the model was called since the last backward pass."""
        self._is_ahead = False
        """Whether the batch in hand is for the forward pass after the backward pass that is under way."""
        self._lines = CodeLines(name)
        self._sampler = StackSampler(self._look, _never_hangs, failed)
        self._now: WorkInterval | None = None
        self._kind = ""
        self._last_ns = 0
        self._told_cost_ns = 0
        self._pause = _PAUSE_NS
        self._due: int | None = None

    @property
    def is_under_way(self) -> bool:
        return self._now is not None

    def begin(self, kind: str, start: int, thread: int, is_training: bool = True) -> None:
        """Begin it: a batch is in hand, or with kind UNSOURCED a step has ended and nothing is known to give one."""
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
        """End it: the model is called, or another batch is asked for."""
        interval, self._is_ahead = self._now, False
        if interval is not None and self._kind != WAITS:
            self._last_ns = 0 if self._kind == AHEAD else end - interval.start
            steps.worked(self._kind, interval.start, end)
        self.drop()

    def called(self, end: int, steps: StepTimeline) -> None:
        """End it: the model is called, where a batch fetched ahead begins its forward pass."""
        interval, kind = self._now, self._kind
        self.end(end, steps)
        self._was_called = True
        if interval is not None and kind == WAITS:
            self._now, self._kind = WorkInterval(end, interval.thread), AHEAD

    def interrupt(self, start: int, steps: StepTimeline) -> None:
        """Let a backward pass or an optimizer begin. Work since the model was called is for the next forward pass."""
        interval, kind, was_called, self._was_called = self._now, self._kind, self._was_called, False
        if interval is not None and kind == WORK and was_called:
            self.end(start, steps)
        self.drop()
        self._is_ahead |= interval is not None and kind in (WORK, WAITS)

    def resume(self, start: int, thread: int) -> None:
        """Look out for the model again, once that has ended, where a batch waits for it."""
        if self._is_ahead:
            self._now, self._kind, self._is_ahead = WorkInterval(start, thread), WAITS, False
            self.watch()

    def drop(self) -> None:
        """Count it as nothing of its own: no model was seen."""
        interval, self._now = self._now, None
        if interval is not None:
            self.ignore()
            self._sampler.end(interval, time.monotonic_ns() - interval.start)

    def restart(self, start: int) -> None:
        """Let it begin only now: what came before was the probe's own."""
        if self._now is not None:
            self._now.start = start

    def stop(self) -> None:
        """End it, and the thread that samples; another begins with the next work that is worth it."""
        self.drop()
        self._sampler.stop()

    def forking(self) -> None:
        """Take no thread of ours through a fork."""
        self._sampler.stop()

    def forked(self) -> None:
        """Begin anew in the child of a fork."""
        self.drop()
        self.calls.forked()
        self._lines.take()

    def cost_ns(self) -> int:
        """Return what sampling has cost since the last call."""
        before, self._told_cost_ns = self._told_cost_ns, self._sampler.cost_ns
        return self._told_cost_ns - before

    def records(self, now: int, now_us: int, is_over: bool) -> list[Record]:
        """Return the lines and calls that were seen since the last record, once that is due."""
        found = self.calls.records(now, now_us, is_over)
        if self._due is None:
            self._due = now + self._pause
        if now < self._due and not is_over:
            return found
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_NS)
        self._due = now + self._pause
        lines = self._lines.take()
        return [*found, ("loop", now_us, lines)] if lines else found

    def _look(self, stack: Stack, ns: int) -> None:
        self._lines.add(stack, ns)


def _never_hangs(*_: Any) -> None:
    """Report no hang: what takes long in the loop is the loop's own affair."""
