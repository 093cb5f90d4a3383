"""Candidates of `headrace tune`: DataLoader arguments, and which of them to measure next."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from headrace.doctor.causes.remedy import LEAST_GAIN, interval
from headrace.doctor.simulate.prediction import WIDTH, Prediction

# -- from tune/arguments.py: The arguments of a DataLoader that are tuned, as one value.


DEFAULT_PREFETCH = 2
"""DataLoader's own, where there are workers and nothing else is said."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """`prefetch_factor` is None without workers, as DataLoader has it; `persistent_workers` is False then."""

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool = False
    persistent_workers: bool = False

    @property
    def cost(self) -> tuple[int, int, bool, bool]:
        """What it takes of the machine: of two that are as fast, the smaller one is to be had."""
        return self.num_workers, self.prefetch_factor or 0, self.pin_memory, self.persistent_workers

    @property
    def in_flight(self) -> int:
        """Batches that are made ahead, at most."""
        return self.num_workers * (self.prefetch_factor or 0)

    def changes(self) -> dict[str, Any]:
        """As docs/doctor/remedies.md has them, for one loader."""
        wanted: dict[str, Any] = {"num_workers": self.num_workers, "pin_memory": self.pin_memory}
        if self.num_workers:
            wanted |= {"prefetch_factor": self.prefetch_factor, "persistent_workers": self.persistent_workers}
        return wanted

    def __str__(self) -> str:
        parts = [f"{self.num_workers} worker" + ("" if self.num_workers == 1 else "s")]
        parts += [f"prefetch {self.prefetch_factor}"] if self.num_workers else []
        parts += ["persistent"] if self.persistent_workers else []
        parts += ["pinned"] if self.pin_memory else []
        return ", ".join(parts)


def arguments(
    num_workers: int,
    prefetch_factor: int | None = DEFAULT_PREFETCH,
    *,
    pin_memory: bool = False,
    persistent_workers: bool = False,
) -> Arguments:
    """As a DataLoader takes them: what needs workers goes where there are none."""
    if not num_workers:
        return Arguments(num_workers=0, prefetch_factor=None, pin_memory=pin_memory)
    return Arguments(
        num_workers=num_workers,
        prefetch_factor=DEFAULT_PREFETCH if prefetch_factor is None else prefetch_factor,
        pin_memory=pin_memory,
        persistent_workers=persistent_workers,
    )


# -- from tune/search.py: Which arguments to run next, and which to take. Pure: of predictions and measurements alone.
#
# A simulation that is wrong about one setting is wrong about its neighbours in much the same way. So the logarithm of
# measured over predicted is taken to be a Gaussian process over the settings, whose spread is what the predictions
# say of
# themselves. Each run corrects the predictions around it (kriging of a simulator's discrepancy, Kennedy and O'Hagan
# 2001), and the next one is that of the greatest expected improvement (Jones, Schonlau and Welch 1998).


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
class MeasuredArguments:
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


def estimates(
    predictions: Mapping[Arguments, Prediction], runs: Sequence[MeasuredArguments]
) -> dict[Arguments, Estimate]:
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
    predictions: Mapping[Arguments, Prediction], runs: Sequence[MeasuredArguments], *, floor_us: float | None = None
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


def chosen(runs: Sequence[MeasuredArguments]) -> MeasuredArguments | None:
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


def excluded(candidates: Collection[Arguments], runs: Sequence[MeasuredArguments]) -> set[Arguments]:
    """Those that were run; and where more workers than there are failed, all with as many or more."""
    present = runs[0].arguments.num_workers if runs else 0
    failed = [one.arguments.num_workers for one in runs if one.why in ("broke", "timed out")]
    least = min((count for count in failed if count > present), default=math.inf)
    return {one.arguments for one in runs} | {one for one in candidates if one.num_workers >= least}


def _best_us(runs: Sequence[MeasuredArguments]) -> float | None:
    return min((_mean(one) for one in runs if one.why == "measured" and one.steps), default=None)


def _is_faster(one: MeasuredArguments, present: MeasuredArguments) -> bool:
    bounds = one.interval
    before_us = _mean(present)
    return bounds is not None and bounds[2] < before_us and bounds[0] < before_us * (1 - LEAST_GAIN)


def _mean(one: MeasuredArguments) -> float:
    bounds = one.interval
    return math.inf if bounds is None else bounds[0]


def _log_mean(one: MeasuredArguments) -> float:
    return math.log(max(_mean(one), 1.0))


def _noise(one: MeasuredArguments) -> float:
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


# -- from tune/grid.py: Which arguments are worth a thought for one loader on one machine. Pure.


WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFETCH = (2, 4, 8)


@dataclass(frozen=True, kw_only=True)
class TuneBounds:
    """What a loader and its machine allow. Absent figures bound nothing."""

    present: Arguments
    cores: float | None = None
    most_workers: int | None = None
    """Workers that keep the cores busy; more of them only take turns."""
    worker_bytes: float | None = None
    """Memory that a worker takes for itself."""
    free_bytes: float | None = None
    """Memory that is left beside the present workers."""
    batch_bytes: float | None = None
    queue_bytes: float | None = None
    """Shared memory that is left beside the present queue."""
    has_gpu: bool = False
    passes: int = 1
    """Over the loader that were seen."""
    is_made_anew: bool = False
    """Whether the script makes a new loader for each pass."""
    is_iterable: bool = False
    """Its workers split an iterable dataset between them."""
    needs_workers: str = ""
    """The argument that has a meaning in workers only; empty where there is none."""


@dataclass(frozen=True)
class Grid:
    """Every combination, the present one among them, the cheapest first; and what was left out, in sentences."""

    candidates: tuple[Arguments, ...]
    left_out: tuple[str, ...] = field(default=())


def grid(bounds: TuneBounds) -> Grid:
    """Return workers up to twice the cores, since those that wait for storage need none, as far as memory goes; no
    more than keep the cores busy, where that is known."""
    candidates = {
        arguments(workers, prefetch, pin_memory=pinned, persistent_workers=persistent)
        for workers, prefetch, pinned, persistent in product(
            _workers(bounds), PREFETCH, _pinned(bounds), _persistent(bounds)
        )
    }
    fitting = {one for one in candidates if _fits(one, bounds)} | {bounds.present}
    return Grid(tuple(sorted(fitting, key=lambda one: one.cost)), tuple(_left_out(bounds)))


def _workers(bounds: TuneBounds) -> list[int]:
    now = bounds.present.num_workers
    if bounds.is_iterable:
        return [now]
    cores = 1 if bounds.cores is None else int(bounds.cores)
    most = 2 * max(now, cores + 1)
    if bounds.most_workers is not None:
        most = max(min(most, bounds.most_workers), 1)
    counts = [count for count in WORKERS if count <= most and (count or not bounds.needs_workers)]
    return sorted({*counts, now})


def _pinned(bounds: TuneBounds) -> set[bool]:
    return {False, True} if bounds.has_gpu else {bounds.present.pin_memory}


def _persistent(bounds: TuneBounds) -> set[bool]:
    varies = bounds.passes > 1 and not bounds.is_made_anew
    return {False, True} if varies else {bounds.present.persistent_workers}


def _fits(one: Arguments, bounds: TuneBounds) -> bool:
    return _fits_memory(one, bounds) and _fits_queue(one, bounds)


def _fits_memory(one: Arguments, bounds: TuneBounds) -> bool:
    more = one.num_workers - bounds.present.num_workers
    if more <= 0 or bounds.worker_bytes is None or bounds.free_bytes is None:
        return True
    return more * bounds.worker_bytes <= bounds.free_bytes


def _fits_queue(one: Arguments, bounds: TuneBounds) -> bool:
    more = one.in_flight - bounds.present.in_flight
    if more <= 0 or bounds.batch_bytes is None or bounds.queue_bytes is None:
        return True
    return more * bounds.batch_bytes <= bounds.queue_bytes


def _left_out(bounds: TuneBounds) -> list[str]:
    said = []
    if bounds.is_iterable:
        said.append(
            "num_workers: left as it is, since the samples of an iterable dataset hang on how many workers share it"
        )
    elif bounds.needs_workers:
        said.append(f"num_workers=0: not tried, since {bounds.needs_workers} has a meaning in workers only")
    if not bounds.is_iterable and any(not _fits_memory(arguments(count), bounds) for count in _workers(bounds)):
        said.append("more workers: host memory has no room for them")
    if not bounds.has_gpu:
        said.append("pin_memory: no CUDA device was used in this run, so nothing is copied from pinned memory")
    if bounds.is_made_anew:
        said.append(
            "persistent_workers: the script makes a new DataLoader for each pass; of one made once the workers can stay"
        )
    elif bounds.passes < 2:
        said.append(
            "persistent_workers: one pass over the data was seen, so it was left as it is; where a script makes "
            "several passes it saves the start of the workers in each"
        )
    return said
