"""The recorded work of making, sending and receiving batches."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import NamedTuple

import numpy as np

from ..measure import HostCores, Join, MadeBatch, MeasuredTraining, batch_stages, late, pass_of, usual_us, waited_us
from ..session.model import LoaderFacts, Trainer
from .work import BatchColumns, Column, StageColumns, Stages

LONG = 3.0
"""Times as long as usual for as many bytes, from which unpickling must have waited for a core."""
SEVERAL = 1.5
"""Threads, from which the work of one batch counts as shared by several: below, it is the noise of two clocks."""
COMPUTING = ("decode", "transform", "tokenise", "collate")
"""Categories of stages that wait for nothing but a core, as long as nothing else is known."""
SHARED = (*COMPUTING, "getitem")
"""Categories whose work several threads may share."""
Row = dict[str, tuple[float, float, float]]
"""Calls, computing and waiting by stage."""


class ReceivedBatch(NamedTuple):
    """Row of `Trainer.gets`, and where the batch's making was recorded, that."""

    row: int
    made: MadeBatch | None


def main_loader(training: MeasuredTraining) -> LoaderFacts | None:
    """Return the loader that most of the batches came from; None where steps received none from a DataLoader."""
    passes, numbers = pass_of(training.trainer), training.trainer.gets.pass_
    loaders = Counter(one.loader for row in training.gets if (one := passes.get(numbers[row])) is not None)
    if not loaders:
        return None
    ((number, _),) = loaders.most_common(1)
    return next((loader for loader in training.trainer.loaders if loader.number == number), None)


def received(training: MeasuredTraining, join: Join, loader: LoaderFacts) -> list[ReceivedBatch]:
    """Return the batches that measured steps received from a loader, in order."""
    trainer = training.trainer
    passes = {number: one for number, one in pass_of(trainer).items() if one.loader == loader.number}
    finders = {number: join.finder(trainer, one) for number, one in passes.items()}
    gets = trainer.gets
    return [
        ReceivedBatch(row, finders[gets.pass_[row]].batch(gets.index[row]))
        for row in training.gets
        if gets.pass_[row] in passes
    ]


class Receiving:
    """Unpickling of batches, and what is around it.

    The pipe is read and shared memory opened, from the moment at which the batch lay in the pipe and somebody wanted it
    until it had arrived, but for what was received in between. What is around it is much the same each time, unless the
    thread has to wait for a core, or for the batch's worker.
    """

    def __init__(self, trainer: Trainer, batches: Sequence[ReceivedBatch]) -> None:
        self._gets = gets = trainer.gets
        self._usual_wait = usual = usual_us(gets)
        late_ones = (
            [] if usual is None else [(one.row, late(gets, one.row, one.made, usual)) for one in batches if one.made]
        )
        self._held = {row: float(found[0]) for row, found in late_ones if found is not None}
        self._arrivals = sorted(time for time in trainer.gets.arrived if time is not None)
        around = {row: us for row, made in batches if made is not None and (us := self._around(row, made)) is not None}
        self._usual = median(around.values()) if around else 0.0
        self._excess = {row: max(us - self._usual, 0.0) for row, us in around.items()}
        paces = [pace for row, _ in batches if (pace := self._pace(row)) is not None]
        self._most = LONG * median(paces) if paces else 0.0

    def us(self, row: int) -> float:
        """Return the usual time to receive the batch of that `next()`; 0 for one made in the training thread."""
        unpickle = self._gets.unpickle[row]
        return 0.0 if unpickle is None else self._unpickling(row, unpickle) + self._usual

    def held(self, row: int) -> float:
        """Return what it took longer since the batch's worker was at the next one."""
        return self._held.get(row, 0.0)

    def computing(self, row: int) -> float:
        """Return the CPU time of unpickling; where that was not measured, all its time."""
        unpickle = self._gets.unpickle[row] or 0
        return float(unpickle - (waited_us(self._gets, row) or 0))

    def delay(self, row: int) -> float:
        """Return what it took longer than usual for another reason."""
        unpickle = self._gets.unpickle[row]
        longer = 0.0 if unpickle is None else unpickle - self._unpickling(row, unpickle) - self.held(row)
        return self._excess.get(row, 0.0) + max(longer, 0.0)

    def _unpickling(self, row: int, unpickle: int) -> float:
        """Return the time to unpickle without what it waited more than usual."""
        waited = waited_us(self._gets, row)
        if waited is None or self._usual_wait is None:
            return min(float(unpickle), self._longest(row))
        return unpickle - waited + min(waited, self._usual_wait)

    def _pace(self, row: int) -> float | None:
        """Return microseconds a byte of unpickling; batches without tensors count as one byte."""
        unpickle = self._gets.unpickle[row]
        return None if unpickle is None else unpickle / (self._gets.bytes[row] or 1)

    def _longest(self, row: int) -> float:
        return self._most * (self._gets.bytes[row] or 1)

    def _around(self, row: int, made: MadeBatch) -> float | None:
        """Return the time around unpickling; None where a thread that pins did it."""
        gets = self._gets
        arrived, unpickle, sent = gets.arrived[row], gets.unpickle[row], made.maker.batches.sent[made.row]
        if arrived is None or unpickle is None or sent is None or gets.pin_start[row] is not None:
            return None
        return max(arrived - unpickle - max(gets.start[row], sent, self._before(arrived)), 0.0)

    def _before(self, arrived: int) -> int:
        place = bisect_left(self._arrivals, arrived)
        return self._arrivals[place - 1] if place else 0


@dataclass(frozen=True)
class FirstBatches:
    """Batches whose making is known."""

    usual: list[tuple[int, MadeBatch]]
    """Batches with their rows of `Trainer.gets`; first ones only where there are no others."""
    first: list[MadeBatch]
    """First batches of all makers, received by a measured step or not."""

    @classmethod
    def of(cls, batches: Sequence[ReceivedBatch], *, workers: int, iterates: bool) -> FirstBatches:
        """Tell first batches apart. A worker that `iterates` over its dataset has a first batch in each pass."""
        known = [(one.row, one.made) for one in batches if one.made is not None]
        usual = [(row, made) for row, made in known if not _is_first(made, workers, iterates)]
        makers = {id(made.maker): made.maker for _, made in known}
        made = [MadeBatch(maker, row) for maker in makers.values() for row in range(len(maker.batches.start))]
        return cls(usual or known, [one for one in made if _is_first(one, workers, iterates)])


def _is_first(made: MadeBatch, workers: int, iterates: bool) -> bool:
    batches = made.maker.batches
    is_new = batches.epoch[made.row] == 0 and made.maker.worker is not None
    return batches.index[made.row] < max(workers, 1) and (iterates or is_new)


def batch_columns(trainer: Trainer, batches: FirstBatches, receiving: Receiving, cores: HostCores) -> BatchColumns:
    """Return the work of batches whose making is known; first ones are left out, unless there are no others."""
    return BatchColumns(
        stages=_stages([work_of(made, cores) for _, made in batches.usual]),
        serialise=_column([made.maker.batches.serialise[made.row] for _, made in batches.usual]),
        receive=np.array([receiving.us(row) for row, _ in batches.usual]),
        held=np.array([receiving.held(row) for row, _ in batches.usual]),
        pin=_column([trainer.gets.pin[row] for row, _ in batches.usual]),
    )


def cores_asked(columns: BatchColumns, threads: float, makers: int) -> float:
    """Return the cores that all makers ask for together, when they make batches one after another."""
    wall = float(columns.compute.mean() + columns.wait.mean())
    return max(makers, 1) * threads * float(columns.compute.mean()) / wall if wall else 0.0


def without_barriers(columns: BatchColumns) -> BatchColumns:
    """Drop waits of threads that share work and ask for more cores than there are.

    What the first of them waits, it waits for the others, which have no core. That comes of the simulation itself.
    """
    stages = {name: one.without_waits() if _is_of(name, SHARED) else one for name, one in columns.stages.items()}
    return replace(columns, stages=stages)


def work_of(made: MadeBatch, cores: HostCores) -> Row:
    """Return the work of one batch by stage.

    The time in which a stage did not compute loses its part of the thread's wait for a core, which is no part of the
    work.
    """
    figures = batch_stages(made.maker, made.row, serialise=False)
    row = {name: _split(calls, wall, cpu) for name, (calls, wall, cpu) in figures.items()}
    idle = sum(wait for _, _, wait in row.values())
    delay = cores.delay(made)
    if delay is None and cores.is_busy:
        return {name: (calls, us, 0.0 if _is_of(name, COMPUTING) else wait) for name, (calls, us, wait) in row.items()}
    left = max(1 - (delay or 0.0) / idle, 0.0) if idle > 0 else 0.0
    return {name: (calls, us, wait * left) for name, (calls, us, wait) in row.items()}


def making_threads(batches: Sequence[ReceivedBatch]) -> float:
    """Return the threads that compute at once while a batch is made.

    It is its process's CPU time by that of the thread that makes it.
    """
    known = [one.made for one in batches if one.made is not None and one.made.maker.batches.cpu]
    process = own = 0.0
    for maker, row in known:
        cpu = maker.batches.cpu[row]
        if cpu is not None:
            process += cpu - (maker.batches.serialise[row] or 0)
            own += sum(min(us, wall) for _, wall, us in batch_stages(maker, row, serialise=False).values() if us)
    threads = process / own if own > 0 else 1.0
    return threads if threads >= SEVERAL else 1.0


def first_batch(batches: FirstBatches, columns: BatchColumns, cores: HostCores) -> Stages:
    """Return what each stage of a worker's first batch takes more than in others; empty where no first one is known.

    Of stages that only first ones have, it is all.
    """
    firsts = _stages([work_of(made, cores) for made in batches.first])
    none = np.zeros(1)
    return {
        name: stage.beyond(columns.stages.get(name, StageColumns(none, none, none))) for name, stage in firsts.items()
    }


def _split(calls: int, wall: int, cpu: int | None) -> tuple[float, float, float]:
    """Split a stage into computing and waiting. Without its CPU time all of it counts as computing."""
    compute = wall if cpu is None else min(cpu, wall)
    return float(calls), float(compute), float(wall - compute)


def _is_of(name: str, categories: tuple[str, ...]) -> bool:
    return name.partition(":")[0] in categories


def _stages(rows: list[Row]) -> dict[str, StageColumns]:
    names = dict.fromkeys(name for row in rows for name in row)
    absent = (0.0, 0.0, 0.0)
    return {name: StageColumns(*np.array([row.get(name, absent) for row in rows]).T) for name in names}


def _column(values: Sequence[int | None]) -> Column:
    """Return a column. What was not measured did not happen: nothing is pickled in the trainer, say."""
    return np.array([value or 0 for value in values], dtype=np.float64)
