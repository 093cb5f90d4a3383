"""Steps that have ended: what is due when one is closed, and how they are written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from ..evidence_file import BLOCK
from ..settings import CoreUse, core_use
from .step_records import batch_record, batch_records, device_records

if TYPE_CHECKING:
    from ..batch_production import BatchRecorder
    from .steps import OptimizerStep
    from .training import TrainingObserver

now = time.monotonic_ns
READY_EVERY = 5
"""Where there are several ranks, every how many-th step is stamped with the moment when its own gradients were done."""


class ClosedSteps:
    """Steps of a training thread, from the moment when the next one begins."""

    def __init__(self, training: TrainingObserver, batches: BatchRecorder) -> None:
        self._training = training
        self._batches = batches
        self.is_stamped = False
        """Whether the moment at which the open step's own gradients are done is wanted."""
        self._used: CoreUse | None = None
        """Of the cores, until the step closed last. Not where a run is only observed: it is to cost next to nothing."""

    def close(self, step: OptimizerStep) -> None:
        """Close a step, and do what is due now and then."""
        training = self._training
        end = step.end or step.start
        training.pauses.observed(end - step.start)
        if not training.settings.observe:  # steps are closed as long after their ends as one another
            used, self._used = self._used, core_use(end - step.start)
            step.use = None if used is None else self._used.us_since(used)
        is_wanted = training.evidence.wants(step.number)
        training.writer.closed(step, is_wanted)
        if training.marks is not None:
            training.marks.close(step.number, is_wanted)
        if training.limit.settle(step.number, training.steps.gets):
            self._agree_on_warmup()
            training.evidence.write(("facts", training.clock.now_us(), {"warmup_steps": training.limit.warmup}))
        if training.writer.is_due(end):
            self.write()
        if training.windows.is_keeping or training.windows.is_replaying:
            training.windows.closed(step)
        if training.steps.optimizers > 1:
            training.say("optimizers", f"{training.steps.optimizers} optimizers take part in a step.")
        for call in training.at_close:
            call()
        self.is_stamped = training.steps.number % READY_EVERY == 0 and training.group.world_size() > 1
        if training.ranges is not None:
            training.ranges.step(training.steps.number)
        if training.may_pause and training.ranges is None and training.steps.number % BLOCK == 0:
            training.pauses.begin_if_due(end)

    def _agree_on_warmup(self) -> None:
        """Take the longest of all ranks, since all must end after the same step."""
        training = self._training
        begun = now()
        try:
            if not training.settings.observe:
                agreed = training.group.ranks().agree("warm-up", training.limit.warmup, max)
                training.limit.warmup = training.limit.warmup if agreed is None else agreed
        except Exception as error:  # a store that cannot do it
            training.fault("agreement of ranks", error)
        finally:
            training.costs.measured_ns -= now() - begun  # a wait for others, which is a part of what is counted

    def write(self, is_over: bool = False) -> None:
        """Write the steps that are closed, and what nobody is expected to take over; all of that, once it `is_over`."""
        training = self._training
        beside = [batch_record(training.clock, "fetch", batch) for batch in training.elsewhere.left(is_over)]
        if training.marks is not None:
            beside += device_records(training.marks)
        beside += training.work.records(now(), training.clock.now_us(), is_over)
        training.costs.measured_ns += training.work.cost_ns()
        beside += self._batches.collections.records(training.clock.now_us())
        training.pauses.spent(training.writer.write(beside))

    def write_batches(self, step: OptimizerStep) -> None:
        """Write the batches of the open step."""
        training = self._training
        training.evidence.write(*batch_records(training.clock, step))
        step.gets.clear()
