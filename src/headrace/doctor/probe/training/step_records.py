"""Steps that have ended: what is due when one is closed, and their records on the way to the evidence."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from ..evidence_file import BLOCK, LONGEST_HELD_NS, MOST_HELD, EvidenceFile, Record
from ..settings import CoreUse, core_use

if TYPE_CHECKING:
    from ..batch_production import BatchRecorder
    from ..hooks.device import DeviceMarks
    from ..overhead import TrainingCost
    from ..settings import SessionClock
    from .received_batches import FetchedBatch
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
        if training.windows.is_keeping or training.replay.is_on:
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


def step_records(clock: SessionClock, step: OptimizerStep, cost: int) -> list[Record]:
    """Return its batches' records, then the step's; `cost` is the probe's, in tenths of a microsecond."""
    zero = clock.us(step.start)
    spans = [
        (kind, clock.us(start) - zero, (end - start + 500) // 1000) for kind, start, end in step.spans if end > start
    ]
    records = batch_records(clock, step)
    whole = ("step", step.number, zero, clock.us(step.end or step.start), spans, cost)
    records.append(whole if step.use is None else (*whole, *step.use))
    if step.ready is not None:
        records.append(("ready", step.number, clock.us(step.ready)))
    for start, end, (name, size) in step.collectives:
        records.append(("collective", step.number, clock.us(start), (end - start) // 1000, name, size))
    return records


def batch_records(clock: SessionClock, step: OptimizerStep) -> list[Record]:
    """Return the records of a step's batches. One for an evaluation is a `fetch`, since no step waited for it."""
    return [batch_record(clock, "fetch" if batch.pass_ in step.evaluated else "get", batch) for batch in step.gets]


def batch_record(clock: SessionClock, kind: str, batch: FetchedBatch) -> Record:
    """Return a `get`, or another kind of record with the same fields; a copy is a `replayed`, whatever it was for."""
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
        None if batch.others_cpu is None else batch.others_cpu // 1000,
    )


def device_records(marks: DeviceMarks) -> list[Record]:
    """Return the records of the steps that the device has come past.

    They have whole tenths, each since the mark before: a long run's mark has ten digits, its distance few. Tenths are
    rounded before they are subtracted, so that no error adds up.
    """
    records: list[Record] = []
    for number, step_marks in marks.read():
        times = [round(us * 10) for _, us in step_marks]
        gaps = [time - before for before, time in zip([0, *times], times)]
        records.append(("device", number, "".join(kind for kind, _ in step_marks), gaps))
    return records


class StepWriter:
    """Closed steps of one training thread on their way to the evidence, each with its share of what the hooks cost."""

    def __init__(
        self, evidence: EvidenceFile, clock: SessionClock, costs: TrainingCost, production_ns: Callable[[], int]
    ) -> None:
        """`production_ns` returns what the probe has cost batch production in this process."""
        self._evidence = evidence
        self._clock = clock
        self._costs = costs
        self._production_ns = production_ns
        self._unwritten: list[OptimizerStep] = []
        self._unpriced = 0
        """Steps closed since the costs were taken last."""
        self._written_at = 0
        self._taken_ns = 0
        """What batch production had cost when that was taken last."""

    def closed(self, step: OptimizerStep, is_wanted: bool) -> None:
        """Take a step in. One that is not wanted has its share of the costs all the same."""
        if is_wanted:
            self._unwritten.append(step)
        self._unpriced += 1

    def is_due(self, now: int) -> bool:
        """Tell whether steps have been held long enough."""
        return self._unpriced >= MOST_HELD or now - self._written_at >= LONGEST_HELD_NS

    def write(self, beside: list[Record]) -> int:
        """Write what is closed, and other records `beside` it; return what it cost, in ns, all together."""
        cost = self.take_cost()
        share = round(cost / 100) // max(self._unpriced, 1)
        steps, self._unwritten, self._unpriced = self._unwritten, [], 0
        self._written_at = time.monotonic_ns()
        records = [record for step in steps for record in step_records(self._clock, step, share)]
        if records or beside:
            self._evidence.write(*records, *beside)
        return cost

    def take_cost(self) -> int:
        """Return the ns that the training thread spent on us since the last call, batch production included."""
        before, self._taken_ns = self._taken_ns, self._production_ns()
        return self._costs.take() + self._taken_ns - before
