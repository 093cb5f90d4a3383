"""Steps that have ended: the work due when a step is closed, and their records."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable

from ..evidence_file import LONGEST_HELD_NS, MOST_HELD, Record
from ..settings import CoreUse, SessionClock, core_use
from .device_marks import device_records
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
        at_close: Sequence[Callable[[], None]],
    ) -> None:
        """`closed` receives each closed step. `at_close` functions are called after a step is written."""
        self._state, self._closed, self._at_close = state, closed, at_close
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
