"""The recorded work of producing, sending and receiving batches."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np

from headrace.doctor.measure import Host, Join, MadeBatch, MeasuredTraining, batch_stages, late, usual_us, waited_us
from headrace.doctor.session.trainers import LoaderFacts, ReceivedBatches, Trainer
from headrace.doctor.simulate.work import BatchColumns, Column, StageColumns, Stages

SEVERAL = 1.5
"""Threads from which one batch's work counts as shared. A lower value is noise of two clocks."""
COMPUTING = ("decode", "parse", "transform", "tokenise", "collate")
"""Categories of stages that wait only for a core, unless more is known."""
Row = dict[str, tuple[float, float]]
"""Computing and waiting by stage."""


class ReceivedBatch(NamedTuple):
    """Row of `Trainer.gets`, with the recorded production of the batch, if any."""

    row: int
    made: MadeBatch | None


def received(training: MeasuredTraining, join: Join, loader: LoaderFacts) -> list[ReceivedBatch]:
    """Return the batches that measured steps received from a loader, in order."""
    trainer, gets = training.trainer, training.trainer.gets
    finders = {one.number: join.finder(trainer, one) for one in trainer.passes if one.loader == loader.number}
    return [
        ReceivedBatch(row, finders[gets.pass_[row]].batch(gets.index[row]))
        for row in training.gets
        if gets.pass_[row] in finders
    ]


class ReceiveTimes(NamedTuple):
    """Times of receiving one batch in the training thread, in microseconds."""

    usual: float
    """Usual time; 0 for a batch that the training thread produced."""
    held: float
    """Extra time because the batch's worker was busy with its next batch."""
    computing: float
    """CPU time of unpickling, or all its time if not measured."""
    delay: float
    """Extra time for another reason."""


def receive_times(training: MeasuredTraining, batches: Sequence[ReceivedBatch]) -> dict[int, ReceiveTimes]:
    """Return the time to receive each batch, unpickling and overhead, by row of `Trainer.gets`.

    Receiving reads the pipe and opens shared memory. It lasts from the moment at which the batch was in the pipe and
    requested, until it had arrived, minus receiving other batches. The overhead is nearly constant, unless the thread
    has to wait for a core, or for the batch's worker.
    """
    gets, usual_wait = training.trainer.gets, usual_us(training.trainer.gets)
    arrivals = sorted(time for time in gets.arrived if time is not None)
    made = {row: one for row, one in batches if one is not None}
    around = {row: us for row, one in made.items() if (us := _around(gets, row, one, arrivals)) is not None}
    usual = median(around.values()) if around else 0.0
    found = {}
    for row in training.gets:
        excess = max(around.get(row, usual) - usual, 0.0)
        unpickle, waited = gets.unpickle[row], waited_us(gets, row)
        one = made.get(row)
        late_by = None if one is None or usual_wait is None else late(gets, row, one, usual_wait)
        held = 0.0 if late_by is None else float(late_by[0])
        if unpickle is None:
            found[row] = ReceiveTimes(0.0, held, 0.0, excess)
            continue
        own = float(unpickle)
        if waited is not None and usual_wait is not None:  # excludes waiting beyond the usual
            own = unpickle - waited + min(waited, usual_wait)
        computing = float(unpickle - (waited or 0))
        found[row] = ReceiveTimes(own + usual, held, computing, excess + max(unpickle - own - held, 0.0))
    return found


def _around(gets: ReceivedBatches, row: int, made: MadeBatch, arrivals: Sequence[int]) -> float | None:
    """Return the overhead around unpickling; None if a pinning thread did it."""
    arrived, unpickle, sent = gets.arrived[row], gets.unpickle[row], made.maker.batches.sent[made.row]
    if arrived is None or unpickle is None or sent is None or gets.pin_start[row] is not None:
        return None
    place = bisect_left(arrivals, arrived)
    before = arrivals[place - 1] if place else 0
    return max(arrived - unpickle - max(gets.start[row], sent, before), 0.0)


class FirstBatches(NamedTuple):
    """Batches with known production, with the first batches of workers separate."""

    usual: list[tuple[int, MadeBatch]]
    """Batches with their rows of `Trainer.gets`. First batches are included only if there are no others."""
    first: list[MadeBatch]
    """First batches of all producers, whether or not a measured step received them."""


def first_apart(batches: Sequence[ReceivedBatch], *, workers: int, iterates: bool) -> FirstBatches:
    """Separate first batches. A worker that `iterates` over its dataset has a first batch in each pass."""

    def is_first(made: MadeBatch) -> bool:
        rows = made.maker.batches
        is_new = rows.epoch[made.row] == 0 and made.maker.worker is not None
        return rows.index[made.row] < max(workers, 1) and (iterates or is_new)

    known = [(one.row, one.made) for one in batches if one.made is not None]
    makers = {id(made.maker): made.maker for _, made in known}
    made = [MadeBatch(maker, row) for maker in makers.values() for row in range(len(maker.batches.start))]
    usual = [(row, made) for row, made in known if not is_first(made)]
    return FirstBatches(usual or known, [one for one in made if is_first(one)])


def batch_columns(
    trainer: Trainer, batches: FirstBatches, receiving: Mapping[int, ReceiveTimes], host: Host
) -> BatchColumns:
    """Return the work of batches with known production, without first batches unless there are no others."""
    return BatchColumns(
        stages=_stages([work_of(made, host) for _, made in batches.usual]),
        serialise=_column([made.maker.batches.serialise[made.row] for _, made in batches.usual]),
        receive=np.array([receiving[row].usual for row, _ in batches.usual]),
        held=np.array([receiving[row].held for row, _ in batches.usual]),
        pin=_column([trainer.gets.pin[row] for row, _ in batches.usual]),
    )


def work_of(made: MadeBatch, host: Host) -> Row:
    """Return the work of one batch by stage. A stage with unknown CPU time counts as computing.

    The waiting time of a stage is reduced by its share of the thread's wait for a core, which is no part of the work.
    """
    row: Row = {}
    for name, (_, wall, cpu) in batch_stages(made.maker, made.row, serialise=False).items():
        compute = wall if cpu is None else min(cpu, wall)
        row[name] = (float(compute), float(wall - compute))
    idle = sum(wait for _, wait in row.values())
    delay = host.delay(made)
    if delay is None and host.is_busy:
        return {
            name: (compute, 0.0 if name.partition(":")[0] in COMPUTING else wait)
            for name, (compute, wait) in row.items()
        }
    left = max(1 - (delay or 0.0) / idle, 0.0) if idle > 0 else 0.0
    return {name: (compute, wait * left) for name, (compute, wait) in row.items()}


def making_threads(batches: Sequence[ReceivedBatch]) -> float:
    """Return the threads that compute at once for a batch: the process's CPU time by the producing thread's."""
    known = [one.made for one in batches if one.made is not None and one.made.maker.batches.cpu]
    process = own = 0.0
    for maker, row in known:
        cpu = maker.batches.cpu[row]
        if cpu is not None:
            process += cpu - (maker.batches.serialise[row] or 0)
            own += sum(min(us, wall) for _, wall, us in batch_stages(maker, row, serialise=False).values() if us)
    threads = process / own if own > 0 else 1.0
    return threads if threads >= SEVERAL else 1.0


def first_batch(batches: FirstBatches, columns: BatchColumns, host: Host) -> Stages:
    """Return each stage's extra time in a worker's first batch. Stages only in first batches count in full."""
    found = {}
    for name, first in _stages([work_of(made, host) for made in batches.first]).items():
        usual = columns.stages.get(name, StageColumns(np.zeros(1), np.zeros(1)))
        compute = np.maximum(first.compute.mean(keepdims=True) - usual.compute.mean(), 0.0)
        wait = np.maximum(first.wait.mean(keepdims=True) - usual.wait.mean(), 0.0)
        found[name] = StageColumns(compute, wait)
    return found


def _stages(rows: list[Row]) -> dict[str, StageColumns]:
    names = dict.fromkeys(name for row in rows for name in row)
    absent = (0.0, 0.0)
    return {name: StageColumns(*np.array([row.get(name, absent) for row in rows]).T) for name in names}


def _column(values: Sequence[int | None]) -> Column:
    """Return a column of floats. An unmeasured time is 0: nothing is pickled in the trainer, for example."""
    return np.array([value or 0 for value in values], dtype=np.float64)
