"""The recorded work of steps: what is left of them without waiting for batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from statistics import fmean, median

import numpy as np

from headrace.doctor.analyse.device import device_parts
from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.analyse.replayed import evaluation_us, window_us
from headrace.doctor.measure.steps import REPLAY, Step, Training, window_steps
from headrace.doctor.predict.columns import Column, StepColumns
from headrace.doctor.session.model import Loader, Trainer

NOISE = 0.1
"""Threads, by which the noise of two clocks makes one of them more than it is."""


@dataclass(frozen=True)
class Computing:
    """Of the training thread."""

    steps: StepColumns
    team: int
    """Threads that compute together."""
    is_measured: bool
    """Whether its CPU time was; else all its time counts as computing."""


@dataclass(frozen=True)
class MadeHere:
    """By step, what the training thread had to do for batches themselves, and so is no part of computing."""

    cpu: Column
    delay: Column
    """That it waited for a core meanwhile."""


def replay_us(training: Training) -> float | None:
    """Mean step on batches that were kept; None where nothing was replayed."""
    evaluation = fmean(evaluation_us(step) for step in training.steps)
    return window_us(training.trainer, REPLAY, evaluation)


def computing(training: Training, loader: Loader, making: MadeHere, peers_us: float, *, pool: int) -> Computing:
    """`making` is what the trainer spent on batches that it made itself, and on unpickling; `peers_us`
    how long it waits in a step for other ranks that wait for data themselves; `pool` is how many threads of the trainer
    share what it computes, where no device does that."""
    busy = np.array([_busy(training.trainer, step, loader) for step in training.steps], dtype=np.float64)
    gets = np.array([len(_own_gets(training.trainer, step, loader)) for step in training.steps])
    busy = np.maximum(busy - peers_us, 0.0)
    used, device = _used(training, making.cpu), np.full_like(busy, _device_us(training))
    if used is None:
        return Computing(_as_replayed(training, StepColumns(gets, busy, np.zeros_like(busy), device)), 1, False)
    busy = np.maximum(busy - np.maximum(_delays(training) - making.delay, 0.0), np.minimum(used, busy))
    threads = _threads(training, float(used.sum()), float(busy.sum()))
    team = max(pool, ceil(threads - NOISE), 1)
    compute = np.minimum(busy * min(threads / team, 1.0) if team > 1 else used, busy)
    return Computing(_as_replayed(training, StepColumns(gets, compute, busy - compute, device)), team, True)


def _threads(training: Training, used_us: float, busy_us: float) -> float:
    """Return the threads that compute at once: of the median replayed step, beside which nothing took its cores, else
    of the mean observed one."""
    replayed = [
        cpu / step.duration
        for step in window_steps(training.trainer, REPLAY)
        if not step.gets and step.duration and (cpu := _cpu(training, step)) is not None
    ]
    if replayed:
        return median(replayed)
    return used_us / busy_us if busy_us > 0 else 1.0


def _as_replayed(training: Training, steps: StepColumns) -> StepColumns:
    """As long as those that were replayed, which nothing kept from their cores; not where a device runs on beside."""
    replayed, own = replay_us(training), float((steps.compute + steps.wait).mean())
    if replayed is None or steps.device.any() or own <= 0:
        return steps
    return replace(steps, compute=steps.compute * replayed / own, wait=steps.wait * replayed / own)


def _device_us(training: Training) -> float:
    """A step of the device's, where that was measured, and so may run on beside the training thread: of the replayed
    steps, else of the observed ones less the time for which it stood still for want of a batch. Else 0."""
    parts = device_parts(training)
    if parts is None:
        return 0.0
    replayed = replay_us(training)
    return sum(part.us for part in parts if part.name != WAIT) if replayed is None else replayed


def _own_gets(trainer: Trainer, step: Step, loader: Loader) -> list[int]:
    numbers = {one.number for one in trainer.passes if one.loader == loader.number}
    return [row for row in step.gets if trainer.gets.pass_[row] in numbers]


def _busy(trainer: Trainer, step: Step, loader: Loader) -> int:
    """A step's time without its waits for the loader."""
    waited = sum(trainer.gets.duration[row] for row in _own_gets(trainer, step, loader))
    for one in trainer.passes:
        if one.loader != loader.number:
            continue
        if step.start <= one.start < step.end:
            waited += one.ready - one.start
        if one.last is not None and one.last_start is not None and step.start <= one.last_start < step.end:
            waited += one.last
    return max(step.duration - waited, 0)


def _used(training: Training, making: Column) -> Column | None:
    """CPU time of the process beside making batches; None where it was not measured in all steps."""
    used = [_cpu(training, step) for step in training.steps]
    known = [us for us in used if us is not None]
    return np.maximum(np.array(known) - making, 0.0) if known and len(known) == len(used) else None


def _cpu(training: Training, step: Step) -> int | None:
    return None if step.row is None else _at(training.trainer.steps.cpu, step.row)


def _delays(training: Training) -> Column:
    rows = [None if step.row is None else _at(training.trainer.steps.delay, step.row) for step in training.steps]
    return np.array([us or 0 for us in rows], dtype=np.float64)


def _at(column: Sequence[int | None], row: int) -> int | None:
    """Columns are empty where an earlier doctor, or one that only observed, has not measured them."""
    return column[row] if column else None
