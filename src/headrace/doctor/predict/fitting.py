"""Brings the simulation of the present setup to the observed step."""

from __future__ import annotations

from dataclasses import replace
from math import exp, log
from statistics import fmean

from .fit import UNFITTED, Fit
from .record import Recorded
from .rounds import mean_steps

PROBE = 1.05
"""By how much work is multiplied to see what the step owes to it."""
MOST = 0.4
"""The largest correction, as a logarithm: what is further off is no error of measurement."""


def fitted(recorded: Recorded) -> Fit:
    """The smallest corrections, in logarithms, that to first order give the observed step."""
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
    return fmean(mean_steps(recorded, recorded.setup, fit, seed=0))


def _factor(logarithm: float) -> float:
    return exp(min(max(logarithm, -MOST), MOST))
