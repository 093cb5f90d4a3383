"""Brings the simulation of the present setup to the observed step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import exp, log
from statistics import fmean

from headrace.doctor.predict.fit import UNFITTED, Fit
from headrace.doctor.predict.setup import Setup
from headrace.doctor.simulate.prediction import ROUNDS, mean_steps, others_cores
from headrace.doctor.simulate.work import Recorded

PROBE = 1.05
"""By how much work is multiplied to see what the step owes to it."""
DOUBT = {"making": 1.0, "computing": 0.3, "start_up": 1.0}
"""How far each may be off, by the others: the steps' own work is measured beside nothing else where it was replayed."""
MOST = 0.4
"""The largest correction, as a logarithm: what is further off is no error of measurement."""
SOME = 0.1
"""Share of the cores from which others compete for them: less is the system's own housekeeping."""
MOST_THREADS = 16
"""Of other programs, for each core."""
HALVINGS = 8
"""Of the range of other programs' threads."""


def fitted(recorded: Recorded) -> Recorded:
    """With as many threads of other programs as the observed step leaves room for, and then with the smallest
    corrections of work, in logarithms, that to first order give that step."""
    found = replace(recorded, setup=replace(recorded.setup, others=_others(recorded)))
    return replace(found, fit=_fit(found))


def _others(recorded: Recorded) -> float:
    """Threads of other programs that would have had as much of the cores as those had that were there, and no more than
    the observed step leaves room for. What they kept busy is less than they asked for, as ours is."""
    kept, cores = recorded.setup.others, recorded.setup.cores
    if not cores or kept < SOME * cores:
        return kept
    most = MOST_THREADS * cores
    asked = _largest(kept, most, lambda threads: _others_cores(recorded, threads) <= kept)
    return _largest(0.0, asked, lambda threads: _step_us(recorded, threads) <= recorded.observed_us)


def _largest(low: float, high: float, fits: Callable[[float], bool]) -> float:
    """Of this range, the largest number that fits, where all below it do."""
    if fits(high):
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def _step_us(recorded: Recorded, others: float) -> float:
    return fmean(mean_steps(recorded, _with_others(recorded, others), UNFITTED, seed=0, rounds=1))


def _others_cores(recorded: Recorded, others: float) -> float:
    return others_cores(recorded, _with_others(recorded, others))


def _with_others(recorded: Recorded, others: float) -> Setup:
    return replace(recorded.setup, others=others)


def _fit(recorded: Recorded) -> Fit:
    present = _simulated(recorded, UNFITTED)
    gap = log(recorded.observed_us / present)
    owed = {
        name: log(_simulated(recorded, replace(UNFITTED, **{name: PROBE})) / present) / log(PROBE) for name in DOUBT
    }
    size = sum((owed[name] * doubt) ** 2 for name, doubt in DOUBT.items())
    factors = {name: _factor(gap * owed[name] * doubt**2 / size) if size else 1.0 for name, doubt in DOUBT.items()}
    fit = replace(UNFITTED, gap=gap, **factors)
    return replace(fit, rest=recorded.observed_us / _simulated(recorded, fit))


def _simulated(recorded: Recorded, fit: Fit) -> float:
    return fmean(mean_steps(recorded, recorded.setup, fit, seed=0, rounds=ROUNDS))


def _factor(logarithm: float) -> float:
    return exp(min(max(logarithm, -MOST), MOST))
