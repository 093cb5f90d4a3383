"""Work of the training loop on its batches, and the marks on the device's stream.

Work begins with a received batch, and ends when the model is called or the next batch is requested: rebatching, casts,
normalisation, `get_batch` without a known loader. If a backward pass or an optimizer comes first, no model was seen,
and the time counts as part of the forward pass.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Callable

from ..evidence_file import Record
from ..stack_sampler import CodeLines, StackSampler
from ..stages import nothing
from .steps import StepTimeline

WORTH_SAMPLING_NS = 200_000
"""Minimum duration of sampled work. Lines of shorter work would explain nothing."""
_PAUSE_NS, _LONGEST_PAUSE_NS = 1_000_000_000, 60_000_000_000
"""First and maximum interval between two records of lines."""


@dataclass(eq=False)
class WorkInterval:
    """Work in progress: its start and thread, as `StackSampler` expects."""

    start: int
    thread: int


class LoopWork:
    """Work between batches and models, with sampled lines. The hook's `watch` and `ignore` frame a model call."""

    def __init__(self, name: Callable[[str], int], failed: Callable[[Exception], None]) -> None:
        """`name` returns a text's number in the evidence; `failed` is called once if sampling becomes impossible."""
        self.watch: Callable[[], None] = nothing
        self.ignore: Callable[[], None] = nothing
        self.is_hooked = False
        """True if model calls are observed."""
        self._lines = CodeLines(name)
        self._sampler = StackSampler(self._lines.add, nothing, failed)  # slow work in the loop is expected, no hang
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


Marks = list[tuple[str, float]]
"""Kind, and microseconds since the first mark of the process."""
STEP_BEGINS, STEP_ENDS = "s", "p"


class CudaDevice:
    """The CUDA stream of the first optimizer step. Its marks are timing events, and querying a mark never blocks.

    Work on another stream, such as a prefetcher's copy, gets no mark, since times of two streams have no common order.
    """

    def __init__(self, torch: ModuleType) -> None:
        self._cuda = torch.cuda
        self._is_capturing = torch.cuda.is_current_stream_capturing
        self._stream: Any = None
        self.captures = 0
        """Number of CUDA graphs being captured, in any thread. The driver forbids queries during a capture."""

    def follow(self) -> None:
        """Follow the current stream, if none is followed. Called when an optimizer steps."""
        if self._stream is None:
            self._stream = self._cuda.current_stream()

    def record(self, spare: Any) -> Any:
        """Record a mark after all work queued so far, reusing `spare` if given; None if no mark is allowed now."""
        if self._stream is None or self.captures or self._is_capturing():
            return None
        if self._cuda.current_stream() != self._stream:
            return None
        event = self._cuda.Event(enable_timing=True) if spare is None else spare
        event.record(self._stream)
        return event

    def is_done(self, mark: Any) -> bool:
        """Return True if the device has passed the mark. Never blocks."""
        return not self.captures and bool(mark.query())

    def elapsed_us(self, earlier: Any, later: Any) -> float:
        return float(earlier.elapsed_time(later)) * 1000.0


class DeviceMarks:
    """Marks of the open step, and of the steps that the device has not passed yet.

    Nothing here waits for the device: a step's marks are read once the last of them is done. If the device falls more
    than `most_steps` behind, no marks are set until it has caught up. The mark that ends a step begins the next.
    """

    def __init__(self, device: CudaDevice, most_steps: int = 32, most_marks: int = 128) -> None:
        self.device = device
        self._most_steps = most_steps
        self._most_marks = most_marks
        self._spares: list[Any] = []
        self._step: list[tuple[str, Any]] = []
        self._waiting: list[tuple[int, list[tuple[str, Any]]]] = []
        self._last_read: Any = None
        self._last_read_us = 0.0

    def mark(self, kind: str) -> None:
        if len(self._step) >= self._most_marks or len(self._waiting) >= self._most_steps:
            return
        mark = self.device.record(self._spares.pop() if self._spares else None)
        if mark is None:
            return
        if not self._step:
            self._step.append((STEP_BEGINS, mark))
        self._step.append((kind, mark))

    def close(self, number: int) -> None:
        """Close the step: its marks are complete up to the last end of an optimizer."""
        marks = self._step
        end = max((position for position, (kind, _) in enumerate(marks) if kind == STEP_ENDS), default=-1) + 1
        if not end:
            self._step = []
            return
        self._step = [(STEP_BEGINS, marks[end - 1][1]), *marks[end:]]
        self._waiting.append((number, marks[:end]))

    def read(self) -> list[tuple[int, Marks]]:
        """Return the steps that the device has passed since the last call."""
        done: list[tuple[int, Marks]] = []
        while self._waiting and self.device.is_done(self._waiting[0][1][-1][1]):
            number, marks = self._waiting.pop(0)
            done.append((number, [(kind, self._since_first(mark)) for kind, mark in marks]))
        return done

    def _since_first(self, mark: Any) -> float:
        """Return the time since the first mark, summed mark by mark: the device reports long times in few digits."""
        if self._last_read is None:
            self._last_read = mark
        elif mark is not self._last_read:
            self._last_read_us += self.device.elapsed_us(self._last_read, mark)
            self._spares.append(self._last_read)
            self._last_read = mark
        return self._last_read_us
