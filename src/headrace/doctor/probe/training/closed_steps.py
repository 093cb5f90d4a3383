"""Steps that have ended, and the work due when a step is closed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Callable

from ..evidence_file import BLOCK
from ..settings import CoreUse, core_use
from .pauses import PausedTraining
from .step_records import StepWriter, batch_record, batch_records, device_records

if TYPE_CHECKING:
    from ..batch_production import BatchRecorder
    from .state import TrainingState
    from .steps import OptimizerStep
    from .windows import Windows

now = time.monotonic_ns
READY_EVERY = 5
"""Interval of steps in which the time of a rank's own gradients is recorded, with several ranks."""


class ClosedSteps:
    """Closing of a training thread's steps, when the next one begins: work that is due, and their records."""

    def __init__(
        self, state: TrainingState, windows: Windows, batches: BatchRecorder, at_close: Sequence[Callable[[], None]]
    ) -> None:
        """`at_close` functions are called after a step is written."""
        self._state, self._windows, self._batches, self._at_close = state, windows, batches, at_close
        self._writer = StepWriter(state.evidence, state.clock, state.costs, lambda: batches.cost.total_ns)
        self.pauses = PausedTraining(state, self._writer.take_cost)
        self.is_stamped = False
        """True if the time at which the open step's own gradients are done should be recorded."""
        self._used: CoreUse | None = None
        """Core use up to the last closed step. Not read in an observed run, which should cost next to nothing."""

    def close(self, step: OptimizerStep) -> None:
        """Close a step and do the work that is due."""
        state = self._state
        end = step.end or step.start
        self.pauses.observed(end - step.start)
        if not state.settings.observe:  # every step is closed equally long after its end
            used, self._used = self._used, core_use(end - step.start)
            step.use = None if used is None else self._used.us_since(used)
        is_wanted = state.evidence.wants(step.number)
        self._writer.closed(step, is_wanted)
        if state.marks is not None:
            state.marks.close(step.number, is_wanted)
        if state.limit.settle(step.number, state.steps.gets):
            self._agree_on_warmup()
            state.evidence.write(("facts", state.clock.now_us(), {"warmup_steps": state.limit.warmup}))
        if self._writer.is_due(end):
            self.write()
        self._windows.closed(step)
        if state.steps.optimizers > 1:
            state.say("optimizers", f"{state.steps.optimizers} optimizers take part in a step.")
        for call in self._at_close:
            call()
        self.is_stamped = state.steps.number % READY_EVERY == 0 and state.group.world_size() > 1
        if state.ranges is not None:
            state.ranges.step(state.steps.number)
        if state.may_pause and state.ranges is None and state.steps.number % BLOCK == 0:
            self.write()
            self.pauses.begin_if_due(end)

    def _agree_on_warmup(self) -> None:
        """Adopt the longest warm-up of all ranks, since all must end after the same step."""
        state = self._state
        begun = now()
        try:
            if not state.settings.observe:
                agreed = state.group.ranks().agree("warm-up", state.limit.warmup, max)
                state.limit.warmup = state.limit.warmup if agreed is None else agreed
        except Exception as error:  # a store that does not support it
            state.fault("agreement of ranks", error)
        finally:
            state.costs.measured_ns -= now() - begun  # waiting for other ranks is part of the measured time

    def write(self, is_over: bool = False) -> None:
        """Write the closed steps and the batches that nothing will take over; all batches if `is_over`."""
        state = self._state
        beside = [batch_record(state.clock, "fetch", batch) for batch in state.elsewhere.left(is_over)]
        if state.marks is not None:
            beside += device_records(state.marks)
        beside += state.work.records(now(), state.clock.now_us(), is_over)
        state.costs.measured_ns += state.work.cost_ns()
        beside += self._batches.collections.records(state.clock.now_us())
        self.pauses.spent(self._writer.write(beside))

    def write_batches(self, step: OptimizerStep) -> None:
        self._state.evidence.write(*batch_records(self._state.clock, step))
        step.gets.clear()
