"""Candidates of `headrace tune`: which DataLoader arguments to measure, and which to propose.

Everything here is pure: it reads predictions and measurements, and runs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import fmean
from typing import Any, Literal

from ..causes import interval, is_gain
from ..measure import PREFETCH
from ..simulate import Prediction

WORKERS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PREFETCH_FACTORS = (2, 4, 8)
EVEN = 0.02
"""Share of a step within which two settings count as equally fast: two runs of one script differ by as much."""

Why = Literal["measured", "broke", "not applied", "timed out", "different samples"]


@dataclass(frozen=True, kw_only=True, order=True)
class Arguments:
    """The arguments of a DataLoader that are tuned, in the order of what they take of the machine.

    Of two settings that are equally fast the smaller one, which takes less, is proposed.
    Without workers `prefetch_factor` is None and `persistent_workers` is False, as DataLoader has it.
    """

    num_workers: int
    prefetch_factor: int | None
    pin_memory: bool = False
    persistent_workers: bool = False

    @property
    def in_flight(self) -> int:
        """Return the number of batches that are made ahead, at most."""
        return self.num_workers * (self.prefetch_factor or 0)

    def changes(self) -> dict[str, Any]:
        """Return the changes of one loader, as docs/doctor/remedies.md describes them."""
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
    prefetch_factor: int | None = PREFETCH,
    *,
    pin_memory: bool = False,
    persistent_workers: bool = False,
) -> Arguments:
    """Return the arguments as a DataLoader takes them: what needs workers is dropped where there are none."""
    if not num_workers:
        return Arguments(num_workers=0, prefetch_factor=None, pin_memory=pin_memory)
    return Arguments(
        num_workers=num_workers,
        prefetch_factor=PREFETCH if prefetch_factor is None else prefetch_factor,
        pin_memory=pin_memory,
        persistent_workers=persistent_workers,
    )


@dataclass(frozen=True, kw_only=True)
class TuneBounds:
    """Limits that a loader and its machine set. Absent figures limit nothing."""

    present: Arguments
    cores: float | None = None
    most_workers: int | None = None
    """Workers that keep the cores busy; more of them only take turns."""
    worker_bytes: float | None = None
    """Private memory of one worker."""
    free_bytes: float | None = None
    """Memory that is left alongside the present workers."""
    batch_bytes: float | None = None
    queue_bytes: float | None = None
    """Shared memory that is left alongside the present queue."""
    has_gpu: bool = False
    passes: int = 1
    """Observed passes over the loader."""
    is_made_anew: bool = False
    """Whether the script makes a new loader for each pass."""
    is_iterable: bool = False
    """Whether the workers split an iterable dataset between them."""
    needs_workers: str = ""
    """The argument that has a meaning in workers only; empty where there is none."""

    @property
    def workers(self) -> list[int]:
        """Numbers of workers to consider, the present one included."""
        now = self.present.num_workers
        if self.is_iterable:
            return [now]
        most = 2 * max(now, (1 if self.cores is None else int(self.cores)) + 1)
        if self.most_workers is not None:
            most = max(min(most, self.most_workers), 1)
        return sorted({*(one for one in WORKERS if one <= most and (one or not self.needs_workers)), now})

    def has_memory_for(self, one: Arguments) -> bool:
        """Return whether host memory has room for its workers."""
        more = one.num_workers - self.present.num_workers
        room = math.inf if self.free_bytes is None else self.free_bytes
        return more <= 0 or more * (self.worker_bytes or 0) <= room

    def has_room_for(self, one: Arguments) -> bool:
        """Return whether host memory has room for its workers, and shared memory for its queue."""
        more = one.in_flight - self.present.in_flight
        room = math.inf if self.queue_bytes is None else self.queue_bytes
        return self.has_memory_for(one) and (more <= 0 or more * (self.batch_bytes or 0) <= room)


def grid(bounds: TuneBounds) -> list[Arguments]:
    """Combine workers, queues, pinning and persistence within the bounds, the present arguments included.

    The cheapest comes first. Workers that wait for storage need no core, so the grid reaches twice the cores, or as
    many as keep them busy.
    """
    present = bounds.present
    pinned = {False, True} if bounds.has_gpu else {present.pin_memory}
    can_persist = bounds.passes > 1 and not bounds.is_made_anew
    persistent = {False, True} if can_persist else {present.persistent_workers}
    candidates = {
        arguments(workers, prefetch, pin_memory=pin, persistent_workers=persist)
        for workers, prefetch, pin, persist in product(bounds.workers, PREFETCH_FACTORS, pinned, persistent)
    }
    return sorted({one for one in candidates if bounds.has_room_for(one)} | {present})


def left_out(bounds: TuneBounds) -> list[str]:
    """Say what the grid leaves out, and why."""
    said = []
    if bounds.is_iterable:
        said.append(
            "num_workers: unchanged, since the samples of an iterable dataset depend on how many workers share it"
        )
    elif bounds.needs_workers:
        said.append(f"num_workers=0: not tried, since {bounds.needs_workers} has a meaning in workers only")
    if not bounds.is_iterable and not all(bounds.has_memory_for(arguments(count)) for count in bounds.workers):
        said.append("more workers: host memory has no room for them")
    if not bounds.has_gpu:
        said.append("pin_memory: no CUDA device was used in this run, so nothing is copied from pinned memory")
    if bounds.is_made_anew:
        said.append(
            "persistent_workers: the script makes a new DataLoader for each pass; make it once to keep its workers"
        )
    elif bounds.passes < 2:
        said.append(
            "persistent_workers: unchanged, since one pass over the data was seen; in a script that makes several "
            "passes it saves the start of the workers in each"
        )
    return said


@dataclass(frozen=True)
class MeasuredArguments:
    """One run. Where it came to no steps, `why` says what happened, and it is never proposed."""

    arguments: Arguments
    why: Why
    steps: Sequence[float] = ()
    """Durations of the measured steps, in microseconds."""
    detail: str = ""
    others_cores: float | None = None
    """Cores that other programs kept busy meanwhile; None where that was not measured."""

    @property
    def interval(self) -> tuple[float, float, float] | None:
        """Mean step, and the bounds of its 95 % confidence interval."""
        return interval(self.steps) if self.steps else None

    def document(self) -> dict[str, Any]:
        """Return what the JSON document says of it; times are microseconds."""
        mean, low, high = self.interval or (None, None, None)
        return {
            "arguments": asdict(self.arguments),
            "why": self.why,
            "detail": self.detail,
            "steps": len(self.steps),
            "step_us": mean,
            "low_us": low,
            "high_us": high,
            "others_cores": self.others_cores,
        }

    @property
    def mean_us(self) -> float:
        """Mean step; infinite where none was measured."""
        return fmean(self.steps) if self.steps else math.inf


def corrected(
    predictions: Mapping[Arguments, Prediction], runs: Sequence[MeasuredArguments]
) -> dict[Arguments, Prediction]:
    """Scale predictions by what the runs measured.

    A simulation that is wrong about one setting is wrong about its neighbours in much the same way. So all settings
    with workers take the mean ratio of measured to predicted of the runs with workers, and those without take theirs.
    """
    factors = {}
    for has_workers in (False, True):
        missed = [
            math.log(one.mean_us / predictions[one.arguments].step_us)
            for one in runs
            if one.why == "measured" and one.arguments in predictions and bool(one.arguments.num_workers) == has_workers
        ]
        factors[has_workers] = math.exp(fmean(missed)) if missed else 1.0
    return {one: prediction.scaled(factors[bool(one.num_workers)]) for one, prediction in predictions.items()}


def next_run(
    predictions: Mapping[Arguments, Prediction],
    runs: Sequence[MeasuredArguments],
    *,
    lower_bound_us: float = 0.0,
) -> Arguments | None:
    """Return the setting to run next: the cheapest of those predicted to be fastest.

    None where the interval of no prediction reaches `EVEN` below the fastest run, or where `lower_bound_us`, a step
    that waits for no data, does not.
    """
    worth_us = (1 - EVEN) * min((one.mean_us for one in runs if one.why == "measured"), default=0.0)
    left_out = excluded(predictions, runs)
    open_ = {
        one: prediction.step_us
        for one, prediction in corrected(predictions, runs).items()
        if one not in left_out and max(prediction.low_us, lower_bound_us) < worth_us
    }
    fastest = min(open_.values(), default=0.0)
    return min((one for one, us in open_.items() if us <= (1 + EVEN) * fastest), default=None)


def chosen(runs: Sequence[MeasuredArguments]) -> MeasuredArguments | None:
    """Return the cheapest of the runs within `EVEN` of the fastest; None where nothing was measured.

    The first run, the baseline, stays unless another is faster by more than `EVEN` and by its whole interval.
    """
    known = [one for one in runs if one.why == "measured" and one.steps]
    if not known:
        return None
    baseline, fastest = runs[0], min(known, key=lambda one: one.mean_us)
    even = [one for one in known if one.mean_us <= (1 + EVEN) * fastest.mean_us]
    best = min(even, key=lambda one: one.arguments)
    if baseline not in known:
        return best
    return next((one for one in (best, fastest) if is_gain(one.steps, baseline.mean_us)), baseline)


def excluded(candidates: Collection[Arguments], runs: Sequence[MeasuredArguments]) -> set[Arguments]:
    """Return the settings that were run, and where more workers than now failed, all with as many or more."""
    present = runs[0].arguments.num_workers if runs else 0
    failed = [one.arguments.num_workers for one in runs if one.why in ("broke", "timed out")]
    least = min((count for count in failed if count > present), default=math.inf)
    return {one.arguments for one in runs} | {one for one in candidates if one.num_workers >= least}
