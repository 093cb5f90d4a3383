"""Steps that have ended: what is due when one is closed."""

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
"""Where there are several ranks, every how many-th step is stamped with the moment when its own gradients were done."""


class ClosedSteps:
    """Steps of a training thread, from the moment when the next one begins: what is due then, and their records."""

    def __init__(
        self, state: TrainingState, windows: Windows, batches: BatchRecorder, at_close: Sequence[Callable[[], None]]
    ) -> None:
        """`at_close` are called when a step has been written."""
        self._state, self._windows, self._batches, self._at_close = state, windows, batches, at_close
        self._writer = StepWriter(state.evidence, state.clock, state.costs, lambda: batches.cost.total_ns)
        self.pauses = PausedTraining(state, self._writer.take_cost)
        self.is_stamped = False
        """Whether the moment at which the open step's own gradients are done is wanted."""
        self._used: CoreUse | None = None
        """Of the cores, until the step closed last. Not where a run is only observed: it is to cost next to nothing."""

    def close(self, step: OptimizerStep) -> None:
        """Close a step, and do what is due now and then."""
        state = self._state
        end = step.end or step.start
        self.pauses.observed(end - step.start)
        if not state.settings.observe:  # steps are closed as long after their ends as one another
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
        """Take the longest of all ranks, since all must end after the same step."""
        state = self._state
        begun = now()
        try:
            if not state.settings.observe:
                agreed = state.group.ranks().agree("warm-up", state.limit.warmup, max)
                state.limit.warmup = state.limit.warmup if agreed is None else agreed
        except Exception as error:  # a store that cannot do it
            state.fault("agreement of ranks", error)
        finally:
            state.costs.measured_ns -= now() - begun  # a wait for others, which is a part of what is counted

    def write(self, is_over: bool = False) -> None:
        """Write the steps that are closed, and what nobody is expected to take over; all of that, once it `is_over`."""
        state = self._state
        beside = [batch_record(state.clock, "fetch", batch) for batch in state.elsewhere.left(is_over)]
        if state.marks is not None:
            beside += device_records(state.marks)
        beside += state.work.records(now(), state.clock.now_us(), is_over)
        state.costs.measured_ns += state.work.cost_ns()
        beside += self._batches.collections.records(state.clock.now_us())
        self.pauses.spent(self._writer.write(beside))

    def write_batches(self, step: OptimizerStep) -> None:
        """Write the batches of the open step."""
        self._state.evidence.write(*batch_records(self._state.clock, step))
        step.gets.clear()
