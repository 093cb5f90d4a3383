"""Predicted step time of a changed setup: simulated rounds, fitted to the observed step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from math import ceil, exp, hypot, log
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.doctor.measure import StagePart
from headrace.doctor.quantities import percent
from headrace.doctor.simulate.pipeline import simulated
from headrace.doctor.simulate.work import (
    PIN_BYTES_PER_US,
    UNFITTED,
    BatchColumns,
    BatchWork,
    Column,
    FeedSetup,
    PassCosts,
    RecordedRun,
    SimulatedWork,
    SimulationFit,
    StageChange,
    StepColumns,
    StepWork,
    changed_stages,
    receive_us,
    shared_us,
)

ROUNDS = 12
"""Number of simulated rounds. The first follows the order of the run."""
BLOCKS = 12
"""Blocks of a round. Neighbouring steps are similar, for example in storage speed and batch shapes."""
MOST_STEPS = 400
"""Maximum number of steps in a round; blocks of a long run are drawn from all of it."""
SETTLING = 5
"""Steps after the queue is empty, before a simulation counts."""
LEAST_US = 1.0
"""Resolution of all recorded times: no step is shorter."""
PROBE = 1.05
"""Factor on work that measures its influence on the step."""
DOUBT = {"making": 1.0, "computing": 0.3, "start_up": 1.0}
"""Relative uncertainty of each factor. The step's own work was measured undisturbed, if it was replayed."""
MOST = 0.4
"""Maximum correction as a logarithm. A larger deviation is no measurement error."""
SOME = 0.1
"""Share of the cores from which other programs compete; less is the system's own housekeeping."""
MOST_THREADS = 16
"""Maximum threads of other programs per core."""
HALVINGS = 8
"""Bisection steps for the number of other programs' threads."""
BASE_ERROR = 0.05
"""Standard error of any prediction: two runs of the same script differ by as much."""
GAP_ERROR = 0.5
"""Share of the error for the present setup that may recur in another."""
DISTANCE_ERROR = 0.1
"""Share of the logarithm of the predicted change."""
ASSUMED_ERROR = 0.08
"""Error if the training thread's CPU time had to be assumed."""
WORKERS_ERROR = 0.1
"""Error if the number of workers changes.

It covers 90 of 100 pairs of runs in tests/doctor/recorded_pairs, and more than 80 of 100 pairs of a held-out script
(tests/doctor/simulate/test_workers_promises.py).
"""
OTHERS_ERROR = 0.3
"""Share of the cores used by other programs, which may differ in the next run."""
WIDTH = 1.6
"""Standard errors on each side. For a normal distribution 1.3 would cover 80 of 100, but model errors have tails."""


class SimulatedRound(NamedTuple):
    step_us: float
    others_cores: float
    """Mean cores used by other programs."""


def simulated_rounds(
    recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit, seed: int = 0, rounds: int = ROUNDS
) -> Iterator[SimulatedRound]:
    """Simulate a setup several times, each with steps from other parts of the recorded run."""
    steps = min(len(recorded.steps), MOST_STEPS)
    queue = setup.workers * setup.prefetch if setup.feed is None else setup.feed.prefetch
    settling = ceil(2 * queue / max(recorded.batches_a_step, 1.0)) + SETTLING
    first = recorded.first - round(settling * recorded.batches_a_step)
    first = max(first, 0) if setup.pass_batches is None else first % setup.pass_batches
    columns, passes = _batches(recorded, setup), _passes(recorded, setup, fit)
    random = np.random.default_rng(seed)
    for number in range(rounds):
        # Position of each step of a round in the recorded run, as a fraction.
        places = np.arange(steps) / steps
        if number:
            block = np.arange(ceil(steps / BLOCKS)) / len(recorded.steps)
            places = np.concatenate([start + block for start in random.random(BLOCKS)])[:steps] % 1.0
        work = SimulatedWork(
            batches=_batch_work(recorded, setup, columns, fit.making, places),
            steps=_step_work(recorded.steps, fit.computing * setup.step, places, setup.off_step_us),
            passes=passes,
            draw=recorded.draw,
            team=recorded.team,
        )
        found = simulated(setup, work, first=first, steps=settling + steps)
        step_us = (found.ends[-1] - found.ends[settling - 1]) / steps
        yield SimulatedRound(max(step_us, LEAST_US), found.others_cores)


def mean_step_us(recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit, rounds: int = ROUNDS) -> float:
    return fmean(one.step_us for one in simulated_rounds(recorded, setup, fit, rounds=rounds))


def _batches(recorded: RecordedRun, setup: FeedSetup) -> BatchColumns:
    """Return the batches under the setup. Work that is new takes time in proportion to its bytes."""
    columns = recorded.batches.changed(setup.stages)
    slower = recorded.setup.worker_threads / setup.worker_threads
    sent = setup.sent_bytes if setup.workers else 0.0
    pin = recorded.batches.pin
    if not recorded.setup.pinned:
        pin = np.full(len(pin), recorded.batch_bytes / PIN_BYTES_PER_US)
    receive = columns.receive
    if not recorded.setup.workers:
        receive = np.full(len(receive), receive_us(recorded.batch_bytes))
    return replace(
        columns,
        stages={name: replace(one, compute=one.compute * slower) for name, one in columns.stages.items()},
        serialise=columns.serialise * sent,
        receive=receive * sent,
        held=columns.held * sent,
        pin=pin * (setup.sent_bytes if setup.pinned else 0.0),
    )


def _passes(recorded: RecordedRun, setup: FeedSetup, fit: SimulationFit) -> PassCosts:
    """Return the pass costs under the setup, which changes the first batch of a worker."""
    first = changed_stages(recorded.first_batch, setup.stages).values()
    slower = recorded.setup.worker_threads / setup.worker_threads
    passes = recorded.passes
    return replace(
        passes,
        fork=passes.fork * fit.start_up,
        begin=passes.begin * fit.start_up,
        shut_down=passes.shut_down * fit.start_up,
        first_wait=fit.making * sum(float(stage.wait[0]) for stage in first),
        first_compute=fit.making * slower * sum(float(stage.compute[0]) for stage in first),
    )


def _batch_work(
    recorded: RecordedRun, setup: FeedSetup, columns: BatchColumns, factor: float, places: Column
) -> list[BatchWork]:
    """Return a round's batches, by step at `places`, with what writing into shared memory adds or saves."""
    change = bool(setup.workers) - bool(recorded.setup.workers)
    sharing_us = change * shared_us(recorded.batch_bytes) * setup.sent_bytes
    computing = np.maximum(columns.compute + sharing_us, 0.0)
    together = max(round(len(columns) / len(recorded.steps)), 1)
    rows = (_rows(places, len(columns))[:, None] + np.arange(together)).ravel() % len(columns)
    made = [column[rows] * factor for column in (columns.wait, computing, columns.serialise)]
    received = [column[rows] for column in (columns.receive, columns.held, columns.pin)]
    return [BatchWork(*row) for row in np.array(made + received).T.tolist()]


def _step_work(columns: StepColumns, factor: float, places: Column, off_step_us: float) -> list[StepWork]:
    rows = _rows(places, len(columns))
    gets, compute, wait = columns.gets[rows], columns.compute[rows] * factor, columns.wait[rows] * factor
    left = np.maximum(1 - off_step_us * gets / np.maximum(compute + wait, 1e-9), 0.0)
    times = np.array([compute * left, wait * left, columns.device[rows] * factor])
    return [StepWork(*row) for row in zip(gets.tolist(), *times.tolist(), strict=True)]


def _rows(places: Column, rows: int) -> NDArray[np.int64]:
    """Return row numbers. A fraction for a whole step may be just below its number."""
    return np.floor(places * rows + 1e-6).astype(np.int64) % rows


def fitted(recorded: RecordedRun) -> RecordedRun:
    """Fit a recorded run to its observed step.

    First other programs get as many threads as the observed step allows. Then the smallest corrections of work, as
    logarithms, that give the observed step to first order are applied.
    """
    recorded = replace(recorded, setup=replace(recorded.setup, others=_others(recorded)))
    present = mean_step_us(recorded, recorded.setup, UNFITTED)
    gap = log(recorded.observed_us / present)
    owed = {}
    for name in DOUBT:
        probed = replace(UNFITTED, **{name: PROBE})
        owed[name] = log(mean_step_us(recorded, recorded.setup, probed) / present) / log(PROBE)
    size = sum((owed[name] * doubt) ** 2 for name, doubt in DOUBT.items())
    factors = {}
    for name, doubt in DOUBT.items():
        correction = gap * owed[name] * doubt**2 / size if size else 0.0
        factors[name] = exp(min(max(correction, -MOST), MOST))
    fit = replace(UNFITTED, gap=gap, **factors)
    rest = recorded.observed_us / mean_step_us(recorded, recorded.setup, fit)
    return replace(recorded, fit=replace(fit, rest=rest))


def _others(recorded: RecordedRun) -> float:
    """Return the number of other programs' threads that explain their share of cores and the observed step."""
    kept, cores = recorded.setup.others, recorded.setup.cores
    if not cores or kept < SOME * cores:
        return kept

    def alongside(threads: float) -> SimulatedRound:
        (one,) = simulated_rounds(recorded, replace(recorded.setup, others=threads), UNFITTED, rounds=1)
        return one

    asked = _largest(kept, MOST_THREADS * cores, lambda threads: alongside(threads).others_cores <= kept)
    return _largest(0.0, asked, lambda threads: alongside(threads).step_us <= recorded.observed_us)


def _largest(low: float, high: float, fits: Callable[[float], bool]) -> float:
    """Return the largest number in a range that fits, if all smaller numbers fit."""
    if fits(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Prediction:
    """Mean step with a remedy, with an interval that covers the truth in at least 80 of 100 cases."""

    step_us: float
    low_us: float
    high_us: float
    speedup: float
    """Observed step divided by the predicted step."""

    @property
    def is_certain_gain(self) -> bool:
        """True if all of the interval is below the observed step."""
        return self.high_us < self.step_us * self.speedup

    def scaled(self, factor: float) -> Prediction:
        """Return the prediction for a step `factor` times as long."""
        return Prediction(self.step_us * factor, self.low_us * factor, self.high_us * factor, self.speedup / factor)


def predicted(recorded: RecordedRun, setup: FeedSetup, *, seed: int = 0) -> Prediction:
    """Predict the mean step with `setup`, deterministic for a seed; for `recorded.setup`, it is the observed step."""
    fit, present = recorded.fit, recorded.setup
    rest = fit.rest if setup.feed is None else fit.rest * setup.feed.stretch
    rounds = [one.step_us * rest for one in simulated_rounds(recorded, setup, fit, seed)]
    step_us = fmean(rounds)
    others_share = present.others / (present.cores + present.others) if present.cores else 0.0
    error = hypot(
        stdev(rounds) / step_us,
        BASE_ERROR,
        GAP_ERROR * fit.gap,
        DISTANCE_ERROR * log(step_us / recorded.observed_us),
        ASSUMED_ERROR * ("cores" in recorded.assumed),
        WORKERS_ERROR * (setup.workers != present.workers),
        0.0 if setup.feed is None else setup.feed.error,
        OTHERS_ERROR * others_share,
    )
    width = exp(WIDTH * error)
    return Prediction(step_us, step_us / width, step_us * width, recorded.observed_us / step_us)


Change = Callable[[FeedSetup], FeedSetup]
"""Function that returns a changed setup, for a what-if simulation."""


@dataclass(frozen=True)
class Factor:
    """Shares of the current time that a remedy leaves: lower bound, usual value, upper bound."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str


def untimed(least: float, most: float) -> Factor:
    """Return a factor between two assumed bounds."""
    basis = f"The prediction assumes {percent(least)} to {percent(most)} of the time."
    return Factor(least, (least + most) / 2, most, False, basis)


def setting(**values: Any) -> Change:
    """Return the change that sets these fields of a setup."""
    return lambda setup: replace(setup, **values)


def chained(changes: Iterable[Change]) -> Change:
    listed = list(changes)
    return lambda setup: reduce(lambda before, change: change(before), listed, setup)


def name_of(stage: StagePart) -> str:
    return f"{stage.category}:{stage.label}"


def scaled(stages: Sequence[StagePart]) -> Callable[[float], Change]:
    """Return a function from the remaining share to a change that scales the stages, on top of earlier changes."""

    def leaving(left: float) -> Change:
        def change(setup: FeedSetup) -> FeedSetup:
            after = {name_of(one): setup.stages.get(name_of(one), StageChange()).scaled(left) for one in stages}
            return replace(setup, stages={**setup.stages, **after})

        return change

    return leaving
