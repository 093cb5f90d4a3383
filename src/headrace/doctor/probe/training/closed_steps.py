"""Steps that have ended: the work due when a step is closed, their records, and marks on the device's stream."""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Callable

from ..batch_production import BatchRecorder
from ..evidence_file import LONGEST_HELD_NS, MOST_HELD, Record
from ..settings import CoreUse, SessionClock, core_use
from .steps import FetchedBatch, OptimizerStep

if TYPE_CHECKING:
    from .state import TrainingState

now = time.monotonic_ns
READY_EVERY = 5
"""Interval of steps in which the time of a rank's own gradients is recorded, with several ranks."""


class ClosedSteps:
    """Closing of a training thread's steps, when the next one begins: work that is due, and their records."""

    def __init__(
        self,
        state: TrainingState,
        closed: Callable[[OptimizerStep], None],
        batches: BatchRecorder,
        at_close: Sequence[Callable[[], None]],
    ) -> None:
        """`closed` receives each closed step. `at_close` functions are called after a step is written."""
        self._state, self._closed, self._batches, self._at_close = state, closed, batches, at_close
        self.is_stamped = False
        """True if the time at which the open step's own gradients are done should be recorded."""
        self._used: CoreUse | None = None
        """Core use up to the last closed step. Not read in an observed run, which should cost next to nothing."""
        self._unwritten: list[OptimizerStep] = []
        self._written_at = 0

    def close(self, step: OptimizerStep) -> None:
        """Close a step and do the work that is due."""
        state = self._state
        end = step.end or step.start
        if not state.settings.observe:  # every step is closed equally long after its end
            used, self._used = self._used, core_use(end - step.start)
            step.use = None if used is None else self._used.us_since(used)
        self._unwritten.append(step)
        if state.marks is not None:
            state.marks.close(step.number)
        if state.limit.settle(step.number, state.steps.gets):
            self._agree_on_warmup()
            state.evidence.write(("facts", state.clock.now_us(), {"warmup_steps": state.limit.warmup}))
        if len(self._unwritten) >= MOST_HELD or end - self._written_at >= LONGEST_HELD_NS:
            self.write()
        self._closed(step)
        if step.updates > 1:
            state.say("optimizers", f"An iteration with {step.updates} optimizer steps counts as one step.")
        for call in self._at_close:
            call()
        self.is_stamped = state.steps.number % READY_EVERY == 0 and state.group.world_size() > 1

    def _agree_on_warmup(self) -> None:
        """Adopt the longest warm-up of all ranks, since all must end after the same step."""
        state = self._state
        begun = now()
        try:
            if not state.settings.observe:
                agreed = state.group.agree("warm-up", state.limit.warmup, max)
                state.limit.warmup = state.limit.warmup if agreed is None else agreed
        except Exception as error:  # a store that does not support it
            state.fault("agreement of ranks", error)
        finally:
            state.costs.measured_ns -= now() - begun  # waiting for other ranks is part of the measured time

    def write(self, is_over: bool = False) -> None:
        """Write the closed steps with the hooks' cost, and the batches that nothing takes over (all if `is_over`)."""
        state, clock = self._state, self._state.clock
        others = [batch_record(clock, "fetch", batch) for batch in state.elsewhere.left(is_over)]
        if state.marks is not None:
            others += device_records(state.marks)
        others += state.work.records(now(), clock.now_us(), is_over)
        state.costs.measured_ns += state.work.cost_ns()
        others += self._batches.collections.records(clock.now_us())
        share = round(state.costs.take() / 100) // max(len(self._unwritten), 1)
        steps, self._unwritten = self._unwritten, []
        self._written_at = now()
        records = [record for step in steps for record in step_records(clock, step, share)]
        if records or others:
            state.evidence.write(*records, *others)

    def write_batches(self, step: OptimizerStep) -> None:
        self._state.evidence.write(*batch_records(self._state.clock, step))
        step.gets.clear()


def step_records(clock: SessionClock, step: OptimizerStep, cost: int) -> list[Record]:
    """Return the records of a step's batches, then of the step; `cost` is the probe's, in tenths of a microsecond."""
    zero, us = clock.us(step.start), clock.us
    spans = [(kind, us(start) - zero, (end - start + 500) // 1000) for kind, start, end in step.spans if end > start]
    records = batch_records(clock, step)
    whole = ("step", step.number, zero, clock.us(step.end or step.start), spans, cost)
    records.append(whole if step.use is None else (*whole, *step.use))
    if step.ready is not None:
        records.append(("ready", step.number, clock.us(step.ready)))
    for start, end, name in step.collectives:
        records.append(("collective", step.number, clock.us(start), (end - start) // 1000, name))
    return records


def batch_records(clock: SessionClock, step: OptimizerStep) -> list[Record]:
    """Return the records of a step's batches. An evaluation's batch is a `fetch`, since no step waited for it."""
    return [batch_record(clock, "fetch" if batch.pass_ in step.evaluated else "get", batch) for batch in step.gets]


def batch_record(clock: SessionClock, kind: str, batch: FetchedBatch) -> Record:
    """Return a `get`, or another kind of record with the same fields. A copy of a batch is always `replayed`."""
    start, duration = clock.us(batch.start), (batch.end - batch.start) // 1000
    if batch.index_ is None:
        return ("replayed", batch.pass_, start, duration)
    return (
        kind,
        batch.pass_,
        batch.index_,
        start,
        duration,
        None if batch.arrived is None else clock.us(batch.arrived),
        None if batch.unpickle is None else batch.unpickle // 1000,
        None if batch.pin_start is None else clock.us(batch.pin_start),
        None if batch.pin is None else batch.pin // 1000,
        batch.bytes,
        batch.shape,
        None if batch.unpickle_cpu is None else batch.unpickle_cpu // 1000,
    )


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


def device_records(marks: DeviceMarks) -> list[Record]:
    """Return the records of the steps that the device has passed.

    Marks are integers in tenths of a microsecond since the previous mark: absolute times have ten digits in a long run.
    Times are rounded before subtraction, so errors do not accumulate.
    """
    records: list[Record] = []
    for number, step_marks in marks.read():
        times = [round(us * 10) for _, us in step_marks]
        gaps = [time - before for before, time in zip([0, *times], times)]
        records.append(("device", number, "".join(kind for kind, _ in step_marks), gaps))
    return records
