"""Batches between their production and the training: the queue's depth over time, and the mean batch of each worker."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np

from headrace.doctor.measure.batches import Join, batch_stages
from headrace.doctor.measure.steps import MeasuredTraining, is_here, queue_of
from headrace.doctor.session.model import Session


@dataclass(frozen=True)
class QueueDepth:
    """Number of ready batches not yet received: `counts[row]` from `times[row]` to the next time."""

    times: list[float]
    counts: list[int]
    most: int
    """Maximum number of batches in flight."""

    def mean(self, start: float, end: float) -> float:
        """Return the mean count over a time range."""
        area = np.cumsum([0.0, *(np.diff(self.times) * self.counts)])
        at_start, at_end = np.interp((start, end), self.times, area)
        return float(at_end - at_start) / (end - start) if end > start else 0.0

    @property
    def empty(self) -> float:
        """Share of time without a ready batch."""
        whole = self.times[-1] - self.times[0]
        return float(np.diff(self.times)[np.equal(self.counts, 0)].sum()) / whole if whole > 0 else 0.0


def queue_depth(training: MeasuredTraining, join: Join) -> QueueDepth | None:
    """Count the ready batches of the loaders that the steps waited for.

    Returns None if no worker made batches, or if evidence was cut short and so lacks batches.
    """
    trainer, fed = training.trainer, training.fed
    passes = [one for one in trainer.passes if one.loader in fed and not is_here(trainer, one)]
    finders = [join.finder(trainer, one) for one in passes]
    if not passes or any(finder.is_cut for finder in finders):
        return None
    start, end = training.steps[0].start, training.steps[-1].end
    asked = {
        (number, index): begun
        for gets in (trainer.gets, trainer.fetches)
        for number, index, begun in zip(gets.pass_, gets.index, gets.start, strict=True)
    }
    changes: Counter[float] = Counter()
    for one, finder in zip(passes, finders, strict=True):
        # Unrequested batches are discarded when the loader's next pass begins.
        later = [other.start for other in passes if other.loader == one.loader and other.start > one.start]
        for maker, row in finder.batches():
            sent, index = maker.batches.sent[row], maker.batches.index[row]
            taken = asked.get((one.number, index), min(later, default=inf))
            # A batch requested before it was sent is never ready.
            if sent is not None and sent < end and taken > max(start, sent):
                changes[max(sent, start)] += 1
                changes[min(taken, end)] -= 1
    times = sorted({float(start), float(end), *changes})
    counts = list(accumulate(changes[time] for time in times[:-1]))
    return QueueDepth(times, counts, sum(queue_of(trainer, loader) for loader in fed))


class MeanBatch(NamedTuple):
    """Mean batch of one worker in the measured steps."""

    worker: int | None
    """Number of the worker; None for the training thread."""
    batches: int
    stages: dict[str, float]
    """Microseconds by category, including sending; heaviest of all workers first."""

    @property
    def whole_us(self) -> float:
        return sum(self.stages.values())


def mean_batches(session: Session, training: MeasuredTraining) -> list[MeanBatch]:
    """Return the mean batch of each worker that made a batch in the measured steps, by worker number."""
    start, end, trainer = training.steps[0].start, training.steps[-1].end, training.trainer
    own = [one for one in session.makers if (one.trainer, one.host) == (trainer.pid, trainer.host)]
    found = []
    whole: Counter[str] = Counter()
    for maker in sorted(own, key=lambda maker: (maker.worker or 0, maker.started or 0)):
        rows = [row for row, fetched in enumerate(maker.batches.fetched) if start <= fetched <= end]
        walls: Counter[str] = Counter()
        for row in rows:
            for stage, (_, wall, _) in batch_stages(maker, row).items():
                walls[stage.partition(":")[0]] += int(wall)
        if rows:
            means = {stage: wall / len(rows) for stage, wall in walls.items()}
            whole.update(means)
            found.append(MeanBatch(maker.worker, len(rows), means))
    order = [name for name, _ in whole.most_common()]
    return [one._replace(stages={name: one.stages[name] for name in order if one.stages.get(name)}) for one in found]
