"""Which arguments to run next, and which to take. Pure: of predictions and measurements alone.

A simulation that is wrong about one setting is wrong about its neighbours in much the same way. So the logarithm of
measured over predicted is taken to be a Gaussian process over the settings, whose spread is what the predictions say of
themselves. Each run corrects the predictions around it (kriging of a simulator's discrepancy, Kennedy and O'Hagan
2001), and the next one is that of the greatest expected improvement (Jones, Schonlau and Welch 1998).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.doctor.predict.prediction import WIDTH, Prediction
from headrace.doctor.remedies.outcomes import LEAST_GAIN, interval
from headrace.tune.arguments import Arguments

Why = Literal["measured", "broke", "not applied", "timed out", "different samples"]
EVEN = 0.02
"""Share of a step within which two settings count as equally fast: two runs of one script differ by as much."""
WORTH_A_RUN = EVEN
"""Expected gain, as a share of the best step, below which no further run is made."""
ALIKE = 0.9
"""Of the greatest expected gain, from which on the cheaper setting is run first."""
APART = 0.3
"""Correlation of the errors with and without workers: batches between processes are a matter of their own."""


@dataclass(frozen=True)
class Measured:
    """One run. Of one that came to no steps `why` says what happened; it is never taken."""

    arguments: Arguments
    why: Why
    steps: Sequence[float] = ()
    """Durations of the measured steps, in microseconds."""
    detail: str = ""
    others_cores: float | None = None
    """That other programs kept busy meanwhile; None where that was not measured."""

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Mean, and what it lies between in 95 of 100 cases."""
        return interval(self.steps) if self.steps else None


@dataclass(frozen=True)
class Estimate:
    """Of the logarithm of a step's microseconds."""

    mean: float
    deviation: float


def estimates(predictions: Mapping[Arguments, Prediction], runs: Sequence[Measured]) -> dict[Arguments, Estimate]:
    """Predictions, corrected by what was measured near them. They are made from the first run, and its noise is theirs,
    too."""
    known = [one for one in runs if one.why == "measured" and one.arguments in predictions]
    grid = list(predictions)
    steps = np.array([math.log(predictions[one].step_us) for one in grid])
    spread = np.hypot([_deviation(predictions[one]) for one in grid], _noise(runs[0]) if runs else 0.0)
    prior = _covariance(grid, spread)
    if not known:
        return _as_estimates(grid, steps, spread)
    rows = [grid.index(one.arguments) for one in known]
    missed = np.array([_log_mean(one) for one in known]) - steps[rows]
    seen = prior[np.ix_(rows, rows)] + np.diag([_noise(one) ** 2 for one in known])
    gain = np.linalg.solve(seen, prior[rows]).T
    left = np.clip(np.diag(prior) - np.einsum("ij,ji->i", gain, prior[rows]), 0.0, None)
    return _as_estimates(grid, steps + gain @ missed, np.sqrt(left))


def next_run(
    predictions: Mapping[Arguments, Prediction], runs: Sequence[Measured], *, floor_us: float | None = None
) -> Arguments | None:
    """The setting to run next; None where none is expected to gain `WORTH_A_RUN`. `floor_us` is a step that waits for
    no data: no loader makes it shorter."""
    best_us = _best_us(runs)
    if best_us is None:
        return None
    most = math.inf if not floor_us else max(math.log(best_us / floor_us), 0.0)
    left_out = excluded(predictions, runs)
    gains = {
        one: min(_expected_gain(math.log(best_us), estimate), most)
        for one, estimate in estimates(predictions, runs).items()
        if one not in left_out
    }
    greatest = max(gains.values(), default=0.0)
    if greatest < WORTH_A_RUN:
        return None
    return min((one for one, gain in gains.items() if gain >= ALIKE * greatest), key=lambda one: one.cost)


def chosen(runs: Sequence[Measured]) -> Measured | None:
    """The cheapest of those measured within `EVEN` of the fastest; the first run, the script as it is, unless another
    is faster by more than `EVEN` and by its whole interval. None where nothing was measured."""
    known = [one for one in runs if one.why == "measured" and one.interval is not None]
    if not known:
        return None
    present = runs[0]
    fastest_us = min(_mean(one) for one in known)
    even = [one for one in known if _mean(one) <= (1 + EVEN) * fastest_us]
    best = min(even, key=lambda one: one.arguments.cost)
    if present not in known or _is_faster(best, present):
        return best
    fastest = min(known, key=_mean)
    return fastest if _is_faster(fastest, present) else present


def excluded(candidates: Collection[Arguments], runs: Sequence[Measured]) -> set[Arguments]:
    """Those that were run; and where more workers than there are failed, all with as many or more."""
    present = runs[0].arguments.num_workers if runs else 0
    failed = [one.arguments.num_workers for one in runs if one.why in ("broke", "timed out")]
    least = min((count for count in failed if count > present), default=math.inf)
    return {one.arguments for one in runs} | {one for one in candidates if one.num_workers >= least}


def _best_us(runs: Sequence[Measured]) -> float | None:
    return min((_mean(one) for one in runs if one.why == "measured" and one.steps), default=None)


def _is_faster(one: Measured, present: Measured) -> bool:
    bounds = one.interval
    before_us = _mean(present)
    return bounds is not None and bounds[2] < before_us and bounds[0] < before_us * (1 - LEAST_GAIN)


def _mean(one: Measured) -> float:
    bounds = one.interval
    return math.inf if bounds is None else bounds[0]


def _log_mean(one: Measured) -> float:
    return math.log(max(_mean(one), 1.0))


def _noise(one: Measured) -> float:
    """Standard error of the logarithm of its mean, of two runs that differ by `EVEN` anyway."""
    mean, _, high = one.interval or (1.0, 1.0, 1.0)
    spread = math.log(high / mean) / 2 if math.isfinite(high) else 1.0
    return math.hypot(spread, EVEN)


def _deviation(prediction: Prediction) -> float:
    return max(math.log(prediction.high_us / prediction.step_us) / WIDTH, 1e-3)


def _expected_gain(best: float, estimate: Estimate) -> float:
    if estimate.deviation <= 0:
        return max(best - estimate.mean, 0.0)
    normal, ahead = NormalDist(), (best - estimate.mean) / estimate.deviation
    return estimate.deviation * (ahead * normal.cdf(ahead) + normal.pdf(ahead))


def _covariance(grid: Sequence[Arguments], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    places = np.array([_place(one) for one in grid])
    squared = ((places[:, None, :] - places[None, :, :]) ** 2).sum(axis=2)
    has_workers = np.array([one.num_workers > 0 for one in grid])
    alike = np.where(has_workers[:, None] == has_workers[None, :], 1.0, APART)
    covariance: NDArray[np.float64] = spread[:, None] * spread[None, :] * np.exp(-squared / 2) * alike
    return covariance


def _place(one: Arguments) -> tuple[float, float, float, float]:
    """Doublings of workers; half as far, of the queue. Without workers there is no queue: only `APART` counts."""
    workers = math.log2(one.num_workers) if one.num_workers else 0.0
    prefetch = math.log2(one.prefetch_factor) / 2 if one.prefetch_factor else 0.5
    return workers, prefetch, float(one.pin_memory), 0.5 * float(one.persistent_workers)


def _as_estimates(
    grid: Sequence[Arguments], means: NDArray[np.float64], deviations: NDArray[np.float64]
) -> dict[Arguments, Estimate]:
    return {
        one: Estimate(float(mean), float(deviation))
        for one, mean, deviation in zip(grid, means, deviations, strict=True)
    }
