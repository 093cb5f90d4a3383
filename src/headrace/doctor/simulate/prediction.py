"""Predicted step time of a setup: simulated rounds, fitted to the observed step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ceil, exp, hypot, log
from statistics import fmean, stdev

import numpy as np
from numpy.typing import NDArray

from .pipeline import SimulatedSteps, simulated
from .work import (
    UNFITTED,
    BatchColumns,
    BatchWork,
    Column,
    FeedSetup,
    PassCosts,
    RecordedRun,
    SimulatedWork,
    SimulationFit,
    StepColumns,
    StepWork,
    changed_stages,
    pin_us,
    receive_us,
    shared_us,
)

ROUNDS = 12
"""The first in the order of the run."""
BLOCKS = 12
"""Into which a round is cut: neighbours are alike, in storage's speed and in the shapes of batches, say."""
MOST_STEPS = 400
"""Steps of a round, at most; a long run's blocks are drawn from all of it."""
SETTLING = 5
"""Steps beyond those that empty the queue, before a simulation counts."""
LEAST_LEFT = 0.2
"""Share of computing a batch that stays where nothing is written into shared memory any more."""
LEAST_US = 1.0
"""The resolution of all that is recorded: no step is shorter."""
PROBE = 1.05
"""Factor of work by which it is seen what the step owes to it."""
DOUBT = {"making": 1.0, "computing": 0.3, "start_up": 1.0}
"""How far each may be off, against the others. The steps' own work is measured with nothing else running where it was
replayed."""
MOST = 0.4
"""The largest correction, as a logarithm: what is further off is no error of measurement."""
SOME = 0.1
"""Share of the cores from which others compete for them: less is the system's own housekeeping."""
MOST_THREADS = 16
"""Threads of other programs for each core, at most."""
HALVINGS = 8
"""Halvings of the range of other programs' threads."""
BASE_ERROR = 0.05
"""Standard error of a prediction by itself: two runs of the same script differ by as much."""
GAP_ERROR = 0.5
"""Share of what the simulation of the present setup was off: as much again may be wrong elsewhere."""
DISTANCE_ERROR = 0.1
"""Share of the logarithm of the predicted change."""
ASSUMED_ERROR = 0.08
"""Error where the training thread's CPU time had to be assumed."""
WORKERS_ERROR = 0.1
"""Error where the number of workers changes. It covers 90 of 100 pairs of runs in tests/doctor/recorded_pairs, and more
than 80 of those of a script that it was not chosen by (tests/doctor/simulate/test_workers_promises.py)."""
OTHERS_ERROR = 0.3
"""Share of the cores' part that other programs ask for: in the next run it may be another."""
WIDTH = 1.6
"""Standard errors on each side. Of a normal distribution 1.3 would cover 80 of 100; errors of models have tails."""


def mean_steps(
    recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit, seed: int, rounds: int = ROUNDS
) -> list[float]:
    """Return the mean step of each round, in microseconds."""
    settling = _settling(recorded, setup)
    return [_mean_step(one.ends, settling) for one in _simulated_rounds(recorded, setup, fit, seed, rounds)]


def others_cores(recorded: RecordedRun, setup: FeedSetup) -> float:
    """Return the cores that other programs would keep busy meanwhile."""
    (one,) = _simulated_rounds(recorded, setup, UNFITTED, seed=0, rounds=1)
    return one.others_cores


def _simulated_rounds(
    recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit, seed: int, rounds: int
) -> Iterator[SimulatedSteps]:
    steps, settling = min(len(recorded.steps), MOST_STEPS), _settling(recorded, setup)
    first = max(recorded.first - round(settling * recorded.batches_a_step), 0)
    for work in _works(recorded, setup, fit, steps, rounds, seed):
        yield simulated(setup, work, first=first, steps=settling + steps)


def _settling(recorded: RecordedRun, setup: FeedSetup) -> int:
    """Return the steps before those that count."""
    return ceil(2 * setup.workers * setup.prefetch / max(recorded.batches_a_step, 1.0)) + SETTLING


def _mean_step(ends: list[float], settling: int) -> float:
    return max((ends[-1] - ends[settling - 1]) / (len(ends) - settling), LEAST_US)


def _works(
    recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit, steps: int, rounds: int, seed: int
) -> Iterator[SimulatedWork]:
    batch_columns, passes = _batches(recorded, setup), _passes(recorded, setup, fit)
    random = np.random.default_rng(seed)
    for number in range(rounds):
        places = _blocks(random, steps, len(recorded.steps)) if number else np.arange(steps) / steps
        yield SimulatedWork(
            batches=_batch_work(batch_columns, _sharing_us(recorded, setup), len(recorded.steps), fit.making, places),
            steps=_step_work(recorded.steps, fit.computing * setup.step, places, setup.off_step_us),
            passes=passes,
            draw=recorded.draw,
            team=recorded.team,
        )


def _blocks(random: np.random.Generator, steps: int, recorded: int) -> Column:
    """Return where in the recorded run each step of a round is taken from, as a share of it."""
    length = ceil(steps / BLOCKS)
    starts = random.random(BLOCKS)
    return np.concatenate([start + np.arange(length) / recorded for start in starts])[:steps] % 1.0


def _batches(recorded: RecordedRun, setup: FeedSetup) -> BatchColumns:
    """Return the batches as the setup changes them."""
    columns, threads = recorded.batches.changed(setup.stages), _threads(recorded, setup)
    return replace(
        columns,
        stages={name: replace(one, compute=one.compute * threads) for name, one in columns.stages.items()},
        serialise=columns.serialise * (setup.sent_bytes if setup.workers else 0.0),
        receive=_receive(recorded, setup) * setup.sent_bytes,
        held=columns.held * (setup.sent_bytes if setup.workers else 0.0),
        pin=_pin(recorded, setup) * setup.sent_bytes,
    )


def _threads(recorded: RecordedRun, setup: FeedSetup) -> float:
    """Return the factor of computing's wall time."""
    return recorded.setup.worker_threads / setup.worker_threads


def _passes(recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit) -> PassCosts:
    """Return the pass costs as the setup changes what the first batch of a worker takes."""
    first = changed_stages(recorded.first_batch, setup.stages).values()
    start_up, passes = setup.start_up * fit.start_up, recorded.passes
    return replace(
        passes,
        fork=passes.fork * start_up,
        begin=passes.begin * start_up,
        shut_down=passes.shut_down * fit.start_up,
        first_wait=fit.making * sum(float(stage.wait[0]) for stage in first),
        first_compute=fit.making * _threads(recorded, setup) * sum(float(stage.compute[0]) for stage in first),
    )


def _receive(recorded: RecordedRun, setup: FeedSetup) -> Column:
    if not setup.workers:
        return np.zeros(len(recorded.batches))
    if recorded.setup.workers:
        return recorded.batches.receive
    return np.full(len(recorded.batches), receive_us(recorded.batch_bytes))


def _sharing_us(recorded: RecordedRun, setup: FeedSetup) -> float:
    """Return what a batch takes longer where workers write it into shared memory and none did before.

    The other way round it is less than 0.
    """
    change = bool(setup.workers) - bool(recorded.setup.workers)
    return change * shared_us(recorded.batch_bytes) * setup.sent_bytes


def _pin(recorded: RecordedRun, setup: FeedSetup) -> Column:
    if not setup.pinned:
        return np.zeros(len(recorded.batches))
    if recorded.setup.pinned:
        return recorded.batches.pin
    us = pin_us(recorded.batch_bytes) if setup.pin_us is None else setup.pin_us
    return np.full(len(recorded.batches), us)


def _batch_work(columns: BatchColumns, sharing_us: float, steps: int, factor: float, places: Column) -> list[BatchWork]:
    """Return the batches of a round. Those of each step stay together: `places` are the steps'."""
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
    """Return row numbers. A share of whole steps may lie just below its number."""
    return np.floor(places * rows + 1e-6).astype(np.int64) % rows


def fitted(recorded: RecordedRun) -> RecordedRun:
    """Fit a recorded run to its observed step.

    It gains as many threads of other programs as the observed step leaves room for, and then the smallest corrections
    of work, in logarithms, that to first order give that step.
    """
    found = replace(recorded, setup=replace(recorded.setup, others=_others(recorded)))
    return replace(found, fit=_fit(found))


def _others(recorded: RecordedRun) -> float:
    """Return the threads of other programs that would have had as much of the cores as was measured.

    They are no more than the observed step leaves room for. What they kept busy is less than they asked for, as ours
    is.
    """
    kept, cores = recorded.setup.others, recorded.setup.cores
    if not cores or kept < SOME * cores:
        return kept
    most = MOST_THREADS * cores
    asked = _largest(kept, most, lambda threads: _others_cores(recorded, threads) <= kept)
    return _largest(0.0, asked, lambda threads: _step_us(recorded, threads) <= recorded.observed_us)


def _largest(low: float, high: float, fits: Callable[[float], bool]) -> float:
    """Return the largest number of a range that fits, where all below it do."""
    if fits(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _step_us(recorded: RecordedRun, others: float) -> float:
    return fmean(mean_steps(recorded, _with_others(recorded, others), UNFITTED, seed=0, rounds=1))


def _others_cores(recorded: RecordedRun, others: float) -> float:
    return others_cores(recorded, _with_others(recorded, others))


def _with_others(recorded: RecordedRun, others: float) -> FeedSetup:
    return replace(recorded.setup, others=others)


def _fit(recorded: RecordedRun) -> SimulationFit:
    present = _simulated_us(recorded, UNFITTED)
    gap = log(recorded.observed_us / present)
    owed = {
        name: log(_simulated_us(recorded, replace(UNFITTED, **{name: PROBE})) / present) / log(PROBE) for name in DOUBT
    }
    size = sum((owed[name] * doubt) ** 2 for name, doubt in DOUBT.items())
    factors = {name: _factor(gap * owed[name] * doubt**2 / size) if size else 1.0 for name, doubt in DOUBT.items()}
    fit = replace(UNFITTED, gap=gap, **factors)
    return replace(fit, rest=recorded.observed_us / _simulated_us(recorded, fit))


def _simulated_us(recorded: RecordedRun, fit: SimulationFit) -> float:
    return fmean(mean_steps(recorded, recorded.setup, fit, seed=0, rounds=ROUNDS))


def _factor(logarithm: float) -> float:
    return exp(min(max(logarithm, -MOST), MOST))


@dataclass(frozen=True)
class Prediction:
    """Mean step with a remedy, with an interval that covers the truth in at least 80 of 100 cases."""

    step_us: float
    low_us: float
    high_us: float
    speedup: float
    """Observed step divided by the predicted one."""

    def scaled(self, factor: float) -> Prediction:
        """Return the prediction of a step that is so many times as long."""
        return Prediction(self.step_us * factor, self.low_us * factor, self.high_us * factor, self.speedup / factor)


def predicted(recorded: RecordedRun, setup: FeedSetup, *, seed: int = 0) -> Prediction:
    """Predict the mean step time with `setup`, the same for the same seed.

    That of `recorded.setup` is the observed one.
    """
    fit = recorded.fit
    rounds = [us * fit.rest for us in mean_steps(recorded, setup, fit, seed)]
    step_us = fmean(rounds)
    width = exp(WIDTH * hypot(stdev(rounds) / step_us, _model_error(recorded, setup, step_us)))
    return Prediction(step_us, step_us / width, step_us * width, recorded.observed_us / step_us)


def _model_error(recorded: RecordedRun, setup: FeedSetup, step_us: float) -> float:
    return hypot(
        BASE_ERROR,
        GAP_ERROR * recorded.fit.gap,
        DISTANCE_ERROR * log(step_us / recorded.observed_us),
        ASSUMED_ERROR * ("cores" in recorded.assumed),
        WORKERS_ERROR * (setup.workers != recorded.setup.workers),
        OTHERS_ERROR * _others_share(recorded.setup),
    )


def _others_share(setup: FeedSetup) -> float:
    return setup.others / (setup.cores + setup.others) if setup.cores else 0.0
