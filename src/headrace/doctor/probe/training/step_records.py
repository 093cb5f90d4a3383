"""Records of steps and batches, and the queue of closed steps to be written."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable

from ..evidence_file import LONGEST_HELD_NS, MOST_HELD, EvidenceFile, Record

if TYPE_CHECKING:
    from ..device_marks import DeviceMarks
    from ..overhead import TrainingCost
    from ..settings import SessionClock
    from .received_batches import FetchedBatch
    from .steps import OptimizerStep


def step_records(clock: SessionClock, step: OptimizerStep, cost: int) -> list[Record]:
    """Return the records of a step's batches, then of the step; `cost` is the probe's, in tenths of a microsecond."""
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
        None if batch.others_cpu is None else batch.others_cpu // 1000,
    )


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


class StepWriter:
    """Closed steps of one training thread, written with their share of the hooks' cost."""

    def __init__(
        self, evidence: EvidenceFile, clock: SessionClock, costs: TrainingCost, production_ns: Callable[[], int]
    ) -> None:
        """`production_ns` returns the probe's cost to batch production in this process."""
        self._evidence = evidence
        self._clock = clock
        self._costs = costs
        self._production_ns = production_ns
        self._unwritten: list[OptimizerStep] = []
        self._unpriced = 0
        """Steps closed since costs were last taken."""
        self._written_at = 0
        self._taken_ns = 0
        """Cost of batch production when last taken."""

    def closed(self, step: OptimizerStep, is_wanted: bool) -> None:
        """Add a step. A step that is not wanted still counts for its share of the costs."""
        if is_wanted:
            self._unwritten.append(step)
        self._unpriced += 1

    def is_due(self, now: int) -> bool:
        """Return True if steps have been held back long enough."""
        return self._unpriced >= MOST_HELD or now - self._written_at >= LONGEST_HELD_NS

    def write(self, beside: list[Record]) -> int:
        """Write the closed steps and the records in `beside`; return the total cost in ns."""
        cost = self.take_cost()
        share = round(cost / 100) // max(self._unpriced, 1)
        steps, self._unwritten, self._unpriced = self._unwritten, [], 0
        self._written_at = time.monotonic_ns()
        records = [record for step in steps for record in step_records(self._clock, step, share)]
        if records or beside:
            self._evidence.write(*records, *beside)
        return cost

    def take_cost(self) -> int:
        """Return the probe's ns in the training thread since the last call, batch production included."""
        before, self._taken_ns = self._taken_ns, self._production_ns()
        return self._costs.take() + self._taken_ns - before
