"""Brings the simulation of the present setup to the observed step."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from statistics import fmean

from .fit import UNFITTED, Fit
from .record import Recorded
from .rounds import ROUNDS, mean_steps

PROBE = 1.05
"""By how much work is multiplied to see what the step owes to it."""
MOST = 0.4
"""The largest correction, as a logarithm: what is further off is no error of measurement."""
HALVINGS = 6
"""Of the range of other programs' threads."""


def fitted(recorded: Recorded) -> Recorded:
    """With as many threads of other programs as the observed step leaves room for, and then with the smallest
    corrections of work, in logarithms, that to first order give that step."""
    found = replace(recorded, setup=replace(recorded.setup, others=_others(recorded)))
    return replace(found, fit=_fit(found))


def _others(recorded: Recorded) -> float:
    """At most what is recorded: that was concluded from how long threads waited for a core, in which there is the time
    that any thread takes to be woken up."""
    low, high = 0.0, recorded.setup.others
    if high == 0.0 or _with_others(recorded, high) <= recorded.observed_us:
        return high
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if _with_others(recorded, middle) > recorded.observed_us else (middle, high)
    return low


def _with_others(recorded: Recorded, others: float) -> float:
    setup = replace(recorded.setup, others=others)
    return fmean(mean_steps(recorded, setup, UNFITTED, seed=0, rounds=1))


def _fit(recorded: Recorded) -> Fit:
    present = _simulated(recorded, UNFITTED)
    gap = log(recorded.observed_us / present)
    making = log(_simulated(recorded, replace(UNFITTED, making=PROBE)) / present) / log(PROBE)
    computing = log(_simulated(recorded, replace(UNFITTED, computing=PROBE)) / present) / log(PROBE)
    size = making**2 + computing**2
    if size > 0:
        fit = Fit(_factor(gap * making / size), _factor(gap * computing / size), 1.0, gap)
    else:
        fit = replace(UNFITTED, gap=gap)
    return replace(fit, rest=recorded.observed_us / _simulated(recorded, fit))


def _simulated(recorded: Recorded, fit: Fit) -> float:
    return fmean(mean_steps(recorded, recorded.setup, fit, seed=0, rounds=ROUNDS))


def _factor(logarithm: float) -> float:
    return exp(min(max(logarithm, -MOST), MOST))
