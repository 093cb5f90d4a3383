"""The recorded work of making, sending and receiving batches."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import numpy as np

from ..analyse.join import Made
from ..analyse.stages import batch_stages
from ..session.model import Trainer
from .columns import BatchColumns, Column, StageColumns
from .host_cores import HostCores
from .received import Received, is_first
from .receiving import Receiving

SEVERAL = 1.5
"""Threads, from which the work of one batch counts as shared by several: below, it is the noise of two clocks."""
COMPUTING = ("decode", "transform", "tokenise", "collate")
"""Categories of stages that wait for nothing but a core, as long as nothing else is known."""

Row = dict[str, tuple[float, float, float]]
"""By stage: calls, computing and waiting."""


def batch_columns(trainer: Trainer, batches: Sequence[Received], cores: HostCores) -> BatchColumns:
    """Of those whose making is known; the first ones of new workers are left out, unless there are no others."""
    known = [(one.row, one.made) for one in batches if one.made is not None]
    usual = [(row, made) for row, made in known if not is_first(made)] or known
    gets, receiving = trainer.gets, Receiving(trainer)
    return BatchColumns(
        stages=_stages([work_of(made, cores) for _, made in usual]),
        serialise=_column([made.maker.batches.serialise[made.row] for _, made in usual]),
        receive=np.array([receiving.us(row, made) for row, made in usual]),
        pin=_column([gets.pin[row] for row, _ in usual]),
    )


def work_of(made: Made, cores: HostCores) -> Row:
    """One batch by stage. Of the time in which a stage did not compute, its part of what the thread waited for a core
    is left out: it is no part of the work."""
    figures = batch_stages(made.maker, made.row, serialise=False)
    row = {name: _split(calls, wall, cpu) for name, (calls, wall, cpu) in figures.items()}
    idle = sum(wait for _, _, wait in row.values())
    delay = cores.delay(made)
    if delay is None and cores.is_busy:
        return {name: (calls, us, 0.0 if _computes(name) else wait) for name, (calls, us, wait) in row.items()}
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


def speed(batches: Sequence[Received], cores: HostCores) -> float:
    """How much of the time in which they were ready to run the makers ran; 1 where that was not measured."""
    ran = ready = 0.0
    for _, made in batches:
        delay = None if made is None else cores.delay(made)
        if made is not None and delay is not None:
            own = sum(us or 0 for _, _, us in batch_stages(made.maker, made.row, serialise=False).values())
            ran, ready = ran + own, ready + own + delay
    return ran / ready if ready > 0 else 1.0


def first_extra(batches: Sequence[Received], columns: BatchColumns, cores: HostCores) -> tuple[float, float]:
    """What the first batch of a worker computes and waits more than others: 0 where no worker's first is known."""
    makers = {id(one.made.maker): one.made.maker for one in batches if one.made is not None}
    firsts = [
        work_of(Made(maker, int(np.argmin(maker.batches.start))), cores)
        for maker in makers.values()
        if maker.worker is not None
    ]
    if not firsts:
        return 0.0, 0.0
    compute = fmean(sum(us for _, us, _ in row.values()) for row in firsts) - float(columns.compute.mean())
    wait = fmean(sum(us for _, _, us in row.values()) for row in firsts) - float(columns.wait.mean())
    return max(compute, 0.0), max(wait, 0.0)


def _split(calls: int, wall: int, cpu: int | None) -> tuple[float, float, float]:
    """What no clock told the CPU time of counts as computing."""
    compute = wall if cpu is None else min(cpu, wall)
    return float(calls), float(compute), float(wall - compute)


def _computes(name: str) -> bool:
    return name.partition(":")[0] in COMPUTING


def _stages(rows: list[Row]) -> dict[str, StageColumns]:
    names = dict.fromkeys(name for row in rows for name in row)
    absent = (0.0, 0.0, 0.0)
    return {name: StageColumns(*np.array([row.get(name, absent) for row in rows]).T) for name in names}


def _column(values: Sequence[int | None]) -> Column:
    """What was not measured did not happen: nothing is pickled in the trainer, say."""
    return np.array([value or 0 for value in values], dtype=np.float64)
