"""Simulated stretches of training, of recorded work in its own order and resampled by blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from headrace.doctor.predict.assumed import pin_us, receive_us, shared_us
from headrace.doctor.predict.columns import BatchColumns, Column, StepColumns, changed
from headrace.doctor.predict.fit import UNFITTED, Fit
from headrace.doctor.predict.pipeline import Simulated, simulated
from headrace.doctor.predict.setup import Setup
from headrace.doctor.predict.work import BatchWork, PassCosts, StepWork, Work
from headrace.doctor.simulate.work import Recorded

ROUNDS = 12
"""The first in the order of the run."""
BLOCKS = 12
"""Into which a round is cut: neighbours are alike, in storage's speed and in the shapes of batches, say."""
MOST_STEPS = 400
"""Of a round; a long run's blocks are drawn from all of it."""
SETTLING = 5
"""Steps beyond those that empty the queue, before a simulation counts."""
LEAST_LEFT = 0.2
"""Of computing a batch, where nothing is written into shared memory any more."""
LEAST_US = 1.0
"""The resolution of all that is recorded: no step is shorter."""


def mean_steps(recorded: Recorded, setup: Setup, fit: Fit, seed: int, rounds: int = ROUNDS) -> list[float]:
    """The mean step of each round, in microseconds."""
    settling = _settling(recorded, setup)
    return [_mean_step(one.ends, settling) for one in _simulated(recorded, setup, fit, seed, rounds)]


def others_cores(recorded: Recorded, setup: Setup) -> float:
    """That other programs would keep busy meanwhile."""
    (one,) = _simulated(recorded, setup, UNFITTED, seed=0, rounds=1)
    return one.others_cores


def _simulated(recorded: Recorded, setup: Setup, fit: Fit, seed: int, rounds: int) -> Iterator[Simulated]:
    steps, settling = min(len(recorded.steps), MOST_STEPS), _settling(recorded, setup)
    first = max(recorded.first - round(settling * recorded.batches_a_step), 0)
    for work in _works(recorded, setup, fit, steps, rounds, seed):
        yield simulated(setup, work, first=first, steps=settling + steps)


def _settling(recorded: Recorded, setup: Setup) -> int:
    """Steps before those that count."""
    return ceil(2 * setup.workers * setup.prefetch / max(recorded.batches_a_step, 1.0)) + SETTLING


def _mean_step(ends: list[float], settling: int) -> float:
    return max((ends[-1] - ends[settling - 1]) / (len(ends) - settling), LEAST_US)


def _works(recorded: Recorded, setup: Setup, fit: Fit, steps: int, rounds: int, seed: int) -> Iterator[Work]:
    batch_columns, passes = _batches(recorded, setup), _passes(recorded, setup, fit)
    random = np.random.default_rng(seed)
    for number in range(rounds):
        places = _blocks(random, steps, len(recorded.steps)) if number else np.arange(steps) / steps
        yield Work(
            batches=_batch_work(batch_columns, _sharing_us(recorded, setup), len(recorded.steps), fit.making, places),
            steps=_step_work(recorded.steps, fit.computing * setup.step, places, setup.off_step_us),
            passes=passes,
            draw=recorded.draw,
            team=recorded.team,
        )


def _blocks(random: np.random.Generator, steps: int, recorded: int) -> Column:
    """Where in the recorded run, of so many steps, each step of a round is taken from, as a share of it."""
    length = ceil(steps / BLOCKS)
    starts = random.random(BLOCKS)
    return np.concatenate([start + np.arange(length) / recorded for start in starts])[:steps] % 1.0


def _batches(recorded: Recorded, setup: Setup) -> BatchColumns:
    """As the setup changes them."""
    columns, threads = recorded.batches.changed(setup.stages), _threads(recorded, setup)
    return replace(
        columns,
        stages={name: replace(one, compute=one.compute * threads) for name, one in columns.stages.items()},
        serialise=columns.serialise * (setup.sent_bytes if setup.workers else 0.0),
        receive=_receive(recorded, setup) * setup.sent_bytes,
        held=columns.held * (setup.sent_bytes if setup.workers else 0.0),
        pin=_pin(recorded, setup) * setup.sent_bytes,
    )


def _threads(recorded: Recorded, setup: Setup) -> float:
    """By which the wall time of computing is multiplied."""
    return recorded.setup.worker_threads / setup.worker_threads


def _passes(recorded: Recorded, setup: Setup, fit: Fit) -> PassCosts:
    """As the setup changes what the first batch of a worker takes."""
    first = changed(recorded.first_batch, setup.stages).values()
    start_up, passes = setup.start_up * fit.start_up, recorded.passes
    return replace(
        passes,
        fork=passes.fork * start_up,
        begin=passes.begin * start_up,
        shut_down=passes.shut_down * fit.start_up,
        first_wait=fit.making * sum(float(stage.wait[0]) for stage in first),
        first_compute=fit.making * _threads(recorded, setup) * sum(float(stage.compute[0]) for stage in first),
    )


def _receive(recorded: Recorded, setup: Setup) -> Column:
    if not setup.workers:
        return np.zeros(len(recorded.batches))
    if recorded.setup.workers:
        return recorded.batches.receive
    return np.full(len(recorded.batches), receive_us(recorded.batch_bytes))


def _sharing_us(recorded: Recorded, setup: Setup) -> float:
    """Return what a batch takes longer where workers write it into shared memory and none did before; less than 0
    the other way round."""
    change = bool(setup.workers) - bool(recorded.setup.workers)
    return change * shared_us(recorded.batch_bytes) * setup.sent_bytes


def _pin(recorded: Recorded, setup: Setup) -> Column:
    if not setup.pinned:
        return np.zeros(len(recorded.batches))
    if recorded.setup.pinned:
        return recorded.batches.pin
    us = pin_us(recorded.batch_bytes) if setup.pin_us is None else setup.pin_us
    return np.full(len(recorded.batches), us)


def _batch_work(columns: BatchColumns, sharing_us: float, steps: int, factor: float, places: Column) -> list[BatchWork]:
    """Those of each step stay together: `places` are the steps'."""
    computing = np.maximum(columns.compute + sharing_us, LEAST_LEFT * columns.compute)
    together = max(round(len(columns) / steps), 1)
    rows = (_rows(places, len(columns))[:, None] + np.arange(together)).ravel() % len(columns)
    made = [column[rows] * factor for column in (columns.wait, computing, columns.serialise)]
    received = [column[rows] for column in (columns.receive, columns.held, columns.pin)]
    return [BatchWork(*row) for row in np.array(made + received).T.tolist()]


def _step_work(columns: StepColumns, factor: float, places: Column, off_step_us: float) -> list[StepWork]:
    rows = _rows(places, len(columns))
    gets, compute, wait = columns.gets[rows], columns.compute[rows] * factor, columns.wait[rows] * factor
    busy = np.maximum(compute + wait, 1e-9)
    left = np.maximum(1 - off_step_us * gets / busy, 0.0)
    device = columns.device[rows] * factor
    times = np.array([compute * left, wait * left, device])
    return [StepWork(*row) for row in zip(gets.tolist(), *times.tolist(), strict=True)]


def _rows(places: Column, rows: int) -> NDArray[np.int64]:
    """A share of whole steps may lie just below its number."""
    return np.floor(places * rows + 1e-6).astype(np.int64) % rows
