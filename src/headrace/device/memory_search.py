"""Search for the largest batch that fits: peaks of memory, the line through them, the next size."""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import NamedTuple

import numpy as np

from headrace.device.memory import DeviceMemory
from headrace.errors import BudgetError
from headrace.plan import Budget

GROWTH = 2
"""Maximum growth of a size beyond a measured one: not every out-of-memory failure can be caught."""
CLOSE = 0.02
"""Relative difference below which two sizes count as equal."""


Shape = tuple[int, ...]
MIB = 1 << 20


@dataclass(frozen=True)
class MemoryStep:
    """One user step: `samples` samples of a shape. `peak_bytes` is None if it ran out of memory."""

    shape: Shape
    samples: int
    peak_bytes: int | None

    def __str__(self) -> str:
        peak = "out of memory" if self.peak_bytes is None else f"{self.peak_bytes / MIB:,.1f} MiB"
        return f"{self.samples} x {'x'.join(map(str, self.shape))}: {peak}"


class MemoryLine(NamedTuple):
    """peak = fixed_bytes + bytes_per_sample x samples; `residual_bytes` is the largest distance of a point from it."""

    fixed_bytes: float
    bytes_per_sample: float
    residual_bytes: float

    def samples_at(self, limit_bytes: float) -> float:
        """Return the size at which the peak reaches the limit; infinite if the peak does not grow."""
        if self.bytes_per_sample <= 0:
            return float("inf")
        return (limit_bytes - self.fixed_bytes) / self.bytes_per_sample


def fit_line(measured: Sequence[MemoryStep]) -> MemoryLine:
    """Fit least squares through the sizes that ran, at least two different ones."""
    points = [(one.samples, one.peak_bytes) for one in measured if one.peak_bytes is not None]
    samples, peaks = np.array(points, dtype=np.float64).T
    slope, fixed = np.polyfit(samples, peaks, 1)
    return MemoryLine(float(fixed), float(slope), float(np.abs(peaks - fixed - slope * samples).max()))


def largest_that_fits(measured: Sequence[MemoryStep], *, limit_bytes: int) -> int | None:
    """Return the largest size that ran within the limit, below every size that did not."""
    beyond = _smallest_beyond(measured, limit_bytes)
    fits = [one.samples for one in measured if _fits(one, limit_bytes) and (beyond is None or one.samples < beyond)]
    return max(fits, default=None)


def next_samples(measured: Sequence[MemoryStep], *, limit_bytes: int, most: int) -> int | None:
    """Return the next size, at most `most`; None once the largest fitting size is found to within CLOSE, or none fits.

    It is the size where the line meets the limit. The line fits all points or, if memory grows faster than linearly,
    the two largest, whichever comes first. It is at most GROWTH times a size that ran, and halves the way to one that
    did not.
    """
    fits = largest_that_fits(measured, limit_bytes=limit_bytes)
    beyond = _smallest_beyond(measured, limit_bytes)
    if fits is None:
        return None if beyond is None or beyond == 1 else beyond // 2
    target = _target(measured, limit_bytes)
    if beyond is not None and target >= beyond:
        return (fits + beyond) // 2 if beyond - 1 > fits * (1 + CLOSE) else None
    found = int(min(target, most, GROWTH * fits))
    return found if found > fits * (1 + CLOSE) else None


def _target(measured: Sequence[MemoryStep], limit_bytes: int) -> float:
    ran = sorted((one for one in measured if one.peak_bytes is not None), key=lambda one: one.samples)
    if len({one.samples for one in ran}) < 2:
        return float("inf")
    return min(fit_line(part).samples_at(limit_bytes) for part in (ran, ran[-2:]))


def _smallest_beyond(measured: Sequence[MemoryStep], limit_bytes: int) -> int | None:
    return min((one.samples for one in measured if not _fits(one, limit_bytes)), default=None)


def _fits(one: MemoryStep, limit_bytes: int) -> bool:
    return one.peak_bytes is not None and one.peak_bytes <= limit_bytes


@dataclass(frozen=True)
class BudgetFit:
    """Record of the search for a budget on this rank.

    `steps` are in the order in which they ran. `line` fits the steps of the largest shape, None if there was only one
    size. `limit_bytes` is the limit of the peak: `capacity_bytes` less the `margin`. `ranks` has each rank's result;
    the minimum is the budget. `largest` is the decisive step: of the steps at this rank's result, the one nearest to
    the limit.
    """

    steps: tuple[MemoryStep, ...]
    largest: MemoryStep
    line: MemoryLine | None
    capacity_bytes: int
    limit_bytes: int
    margin: float
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        limit = f"{self.limit_bytes / MIB:,.1f} of {self.capacity_bytes / MIB:,.1f} MiB (margin {self.margin:.0%})"
        lines = [f"limit {limit}", *map(str, self.steps), f"found by {self.largest}"]
        if self.line is not None:
            fixed, slope, residual = (value / MIB for value in self.line)
            lines.append(f"line {fixed:,.1f} MiB + {slope:,.3f} MiB a sample, off by at most {residual:,.3f} MiB")
        if len(self.ranks) > 1:
            lines.append(f"ranks found {', '.join(map(str, self.ranks))}: the least is taken")
        return "\n".join(lines)


@dataclass(frozen=True, kw_only=True)
class FittedBudget(Budget):
    """Budget found by running steps. `print(budget.fit)` describes the search."""

    fit: BudgetFit = field(compare=False)


WARM_UPS = 2
"""Number of unmeasured steps: the first makes the optimizer's state, and libraries choose their workspaces."""
MOST_SAMPLES = 1 << 20
"""Maximum size, for a step whose memory does not grow with its samples."""

RunStep = Callable[..., object]


class BatchSearch:
    """Search for the largest cost at which a step of every shape fits; a cost is samples x the product of the shape.

    The largest shape is fitted first. Each other shape then runs at the same cost. If its memory is not linear in its
    size, as with attention, it may need more, and is fitted in turn.
    """

    def __init__(self, step: RunStep, memory: DeviceMemory, *, margin: float, most: int | None) -> None:
        self._step = step
        self._memory = memory
        self._margin = margin
        self._most = most
        self._steps: list[MemoryStep] = []

    def run(self, shapes: Sequence[Shape]) -> tuple[int, BudgetFit]:
        """Search all shapes. Raises BudgetError if not even one sample fits, or `most` is below one sample."""
        largest, *others = sorted(shapes, key=prod, reverse=True)
        for _ in range(WARM_UPS):
            if self._peak(1, largest) is None:
                raise self._too_small(largest, self._memory.capacity_bytes())
        self._memory.begin()  # so that cached memory does not count for other processes
        capacity_bytes = self._memory.capacity_bytes()
        limit_bytes = int(capacity_bytes * (1 - self._margin))
        cost, shown = self._fitted(largest, limit_bytes, self._most)
        ran = [step for step in self._steps if step.shape == largest and step.peak_bytes is not None]
        line = fit_line(ran) if len(ran) > 1 else None
        for shape in others:
            least, step = self._fitted(shape, limit_bytes, cost, from_the_top=True)
            if step.samples < cost // prod(shape):
                cost, shown = least, step
            elif (step.peak_bytes or 0) > (shown.peak_bytes or 0):
                shown = step
        return cost, BudgetFit(tuple(self._steps), shown, line, capacity_bytes, limit_bytes, self._margin, (cost,))

    def _fitted(
        self, shape: Shape, limit_bytes: int, most: int | None, *, from_the_top: bool = False
    ) -> tuple[int, MemoryStep]:
        """Return the largest cost that fits, and its step; `from_the_top` tries the maximum first."""
        highest = MOST_SAMPLES if most is None else min(MOST_SAMPLES, most // prod(shape))
        if highest < 1:
            named = "x".join(map(str, shape))
            raise BudgetError(f"most: expected room for one sample of {named}, {prod(shape)}, got {most}")
        measured: list[MemoryStep] = []
        samples: int | None = highest if from_the_top else 1
        while samples is not None:
            measured.append(MemoryStep(shape, samples, self._peak(samples, shape)))
            self._steps.append(measured[-1])
            samples = next_samples(measured, limit_bytes=limit_bytes, most=highest)
        fits = largest_that_fits(measured, limit_bytes=limit_bytes)
        if fits is None:
            raise self._too_small(shape, limit_bytes)
        return fits * prod(shape), next(one for one in reversed(measured) if one.samples == fits)

    def _peak(self, samples: int, shape: Shape) -> int | None:
        self._memory.begin()
        try:
            self._step(samples, *shape)
            return self._memory.peak_bytes()
        except Exception as error:
            if not self._memory.is_out_of_memory(error):
                raise
            traceback.clear_frames(error.__traceback__)  # the frames' locals hold the tensors of the step
        gc.collect()
        self._memory.begin()
        return None

    def _too_small(self, shape: Shape, limit_bytes: int) -> BudgetError:
        peaks = [step.peak_bytes for step in self._steps if step.shape == shape and step.peak_bytes is not None]
        took = f"took {min(peaks):,} bytes" if peaks else "ran out of memory"
        return BudgetError(
            f"expected a step of one sample of {'x'.join(map(str, shape))} to fit in {limit_bytes:,} bytes, the "
            f"device's memory less the margin; it {took}; take smaller shapes, a smaller model or checkpointing of "
            "activations"
        )
