"""The step time that a setup would give."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, hypot, log
from statistics import fmean, stdev

from headrace.doctor.predict.setup import Setup
from headrace.doctor.simulate.prediction import mean_steps
from headrace.doctor.simulate.work import Recorded

BASE_ERROR = 0.05
"""Standard error of a prediction by itself: two runs of the same script differ by as much."""
GAP_ERROR = 0.5
"""Of what the simulation of the present setup was off, as much again may be wrong elsewhere."""
DISTANCE_ERROR = 0.1
"""Of the logarithm of the change predicted."""
ASSUMED_ERROR = 0.08
"""Where the training thread's CPU time had to be assumed."""
WORKERS_ERROR = 0.1
"""Where the number of workers changes: it covers 90 of 100 pairs of runs in tests/doctor/recorded_pairs, and more than
80 of those of a script that it was not chosen by (tests/doctor/test_workers_promises.py)."""
OTHERS_ERROR = 0.3
"""By how much of the cores other programs ask for: in the next run that may be another part."""
WIDTH = 1.6
"""Standard errors on each side. Of a normal distribution 1.3 would cover 80 of 100; errors of models have tails."""


@dataclass(frozen=True)
class Prediction:
    """Of the mean step with a remedy, with an interval that covers the truth in at least 80 of 100 cases."""

    step_us: float
    low_us: float
    high_us: float
    speedup: float
    """Of the observed step."""


def predicted(recorded: Recorded, setup: Setup, *, seed: int = 0) -> Prediction:
    """The mean step time with `setup`, the same for the same seed. That of `recorded.setup` is the observed one."""
    fit = recorded.fit
    rounds = [us * fit.rest for us in mean_steps(recorded, setup, fit, seed)]
    step_us = fmean(rounds)
    width = exp(WIDTH * hypot(stdev(rounds) / step_us, _model_error(recorded, setup, step_us)))
    return Prediction(step_us, step_us / width, step_us * width, recorded.observed_us / step_us)


def _model_error(recorded: Recorded, setup: Setup, step_us: float) -> float:
    return hypot(
        BASE_ERROR,
        GAP_ERROR * recorded.fit.gap,
        DISTANCE_ERROR * log(step_us / recorded.observed_us),
        ASSUMED_ERROR * ("cores" in recorded.assumed),
        WORKERS_ERROR * (setup.workers != recorded.setup.workers),
        OTHERS_ERROR * _others_share(recorded.setup),
    )


def _others_share(setup: Setup) -> float:
    return setup.others / (setup.cores + setup.others) if setup.cores else 0.0
