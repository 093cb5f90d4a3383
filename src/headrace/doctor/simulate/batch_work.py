"""The recorded work of making, sending and receiving batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from headrace.doctor.analyse.join import Made
from headrace.doctor.measure.batches import batch_stages
from headrace.doctor.predict.columns import BatchColumns, Column, StageColumns, Stages
from headrace.doctor.predict.firsts import Firsts
from headrace.doctor.predict.host_cores import HostCores
from headrace.doctor.predict.received import Received
from headrace.doctor.predict.receiving import Receiving
from headrace.doctor.session.model import Trainer

SEVERAL = 1.5
"""Threads, from which the work of one batch counts as shared by several: below, it is the noise of two clocks."""
COMPUTING = ("decode", "transform", "tokenise", "collate")
"""Categories of stages that wait for nothing but a core, as long as nothing else is known."""
SHARED = (*COMPUTING, "getitem")
"""Categories whose work several threads may share."""

Row = dict[str, tuple[float, float, float]]
"""By stage: calls, computing and waiting."""


def batch_columns(trainer: Trainer, batches: Firsts, receiving: Receiving, cores: HostCores) -> BatchColumns:
    """Of those whose making is known; the first ones of new workers are left out, unless there are no others."""
    return BatchColumns(
        stages=_stages([work_of(made, cores) for _, made in batches.usual]),
        serialise=_column([made.maker.batches.serialise[made.row] for _, made in batches.usual]),
        receive=np.array([receiving.us(row) for row, _ in batches.usual]),
        held=np.array([receiving.held(row) for row, _ in batches.usual]),
        pin=_column([trainer.gets.pin[row] for row, _ in batches.usual]),
    )


def cores_asked(columns: BatchColumns, threads: float, makers: int) -> float:
    """By all makers together, at the pace at which they make batches one after another."""
    wall = float(columns.compute.mean() + columns.wait.mean())
    return max(makers, 1) * threads * float(columns.compute.mean()) / wall if wall else 0.0


def without_barriers(columns: BatchColumns) -> BatchColumns:
    """Where threads that share the work ask for more cores than there are: what the first of them waits, it waits for
    the others, which have no core. That comes of the simulation itself."""
    stages = {name: one.without_waits() if _is_of(name, SHARED) else one for name, one in columns.stages.items()}
    return replace(columns, stages=stages)


def work_of(made: Made, cores: HostCores) -> Row:
    """One batch by stage. Of the time in which a stage did not compute, its part of what the thread waited for a core
    is left out: it is no part of the work."""
    figures = batch_stages(made.maker, made.row, serialise=False)
    row = {name: _split(calls, wall, cpu) for name, (calls, wall, cpu) in figures.items()}
    idle = sum(wait for _, _, wait in row.values())
    delay = cores.delay(made)
    if delay is None and cores.is_busy:
        return {name: (calls, us, 0.0 if _is_of(name, COMPUTING) else wait) for name, (calls, us, wait) in row.items()}
    left = max(1 - (delay or 0.0) / idle, 0.0) if idle > 0 else 0.0
    return {name: (calls, us, wait * left) for name, (calls, us, wait) in row.items()}


def making_threads(batches: Sequence[Received]) -> float:
    """That compute at once while a batch is made: its process's CPU time by that of the thread that makes it."""
    known = [one.made for one in batches if one.made is not None and one.made.maker.batches.cpu]
    process = own = 0.0
    for maker, row in known:
        cpu = maker.batches.cpu[row]
        if cpu is not None:
            process += cpu - (maker.batches.serialise[row] or 0)
            own += sum(min(us, wall) for _, wall, us in batch_stages(maker, row, serialise=False).values() if us)
    threads = process / own if own > 0 else 1.0
    return threads if threads >= SEVERAL else 1.0


def first_batch(batches: Firsts, columns: BatchColumns, cores: HostCores) -> Stages:
    """What each stage of a worker's first batch takes more than in others; of stages that only first ones have, all.
    Empty where no first one is known."""
    firsts = _stages([work_of(made, cores) for made in batches.first])
    none = np.zeros(1)
    return {
        name: stage.beyond(columns.stages.get(name, StageColumns(none, none, none))) for name, stage in firsts.items()
    }


def _split(calls: int, wall: int, cpu: int | None) -> tuple[float, float, float]:
    """What no clock told the CPU time of counts as computing."""
    compute = wall if cpu is None else min(cpu, wall)
    return float(calls), float(compute), float(wall - compute)


def _is_of(name: str, categories: tuple[str, ...]) -> bool:
    return name.partition(":")[0] in categories


def _stages(rows: list[Row]) -> dict[str, StageColumns]:
    names = dict.fromkeys(name for row in rows for name in row)
    absent = (0.0, 0.0, 0.0)
    return {name: StageColumns(*np.array([row.get(name, absent) for row in rows]).T) for name in names}


def _column(values: Sequence[int | None]) -> Column:
    """What was not measured did not happen: nothing is pickled in the trainer, say."""
    return np.array([value or 0 for value in values], dtype=np.float64)
