"""Closed steps on their way to the evidence, each with its share of what the hooks cost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .evidence_file import LONGEST_HELD_NS, MOST_HELD, Record
from .training.step_records import step_records
from .training.steps import Step

if TYPE_CHECKING:
    from .overhead import Costs
    from .probe import Probe


class StepWriter:
    """Of one training thread."""

    def __init__(self, probe: Probe, costs: Costs) -> None:
        self._probe = probe
        self._costs = costs
        self._unwritten: list[Step] = []
        self._unpriced = 0
        """Steps closed since the costs were taken last."""
        self._written_at = 0
        self._making_ns = 0
        """What was spent on making batches in this process, when it was taken last."""

    def closed(self, step: Step, is_wanted: bool) -> None:
        """One that is not wanted has its share of the costs all the same."""
        if is_wanted:
            self._unwritten.append(step)
        self._unpriced += 1

    def is_due(self, now: int) -> bool:
        return self._unpriced >= MOST_HELD or now - self._written_at >= LONGEST_HELD_NS

    def write(self, beside: list[Record]) -> int:
        """What is closed, and other records `beside` it. What it cost, in ns, is known of all together."""
        cost = self.take_cost()
        share = round(cost / 100) // max(self._unpriced, 1)
        steps, self._unwritten, self._unpriced = self._unwritten, [], 0
        self._written_at = time.monotonic_ns()
        records = [record for step in steps for record in step_records(self._probe.clock, step, share)]
        if records or beside:
            self._probe.evidence.write(*records, *beside)
        return cost

    def take_cost(self) -> int:
        """Nanoseconds that the training thread spent on us since the last call, making batches included."""
        before, self._making_ns = self._making_ns, self._probe.batches.cost.total_ns
        return self._costs.take() + self._making_ns - before
