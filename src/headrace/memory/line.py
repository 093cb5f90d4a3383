"""The line through measured peaks of memory, and the next size to try. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

GROWTH = 2
"""The most that a size is taken beyond one that was measured: not all that runs out of memory can be caught."""
CLOSE = 0.02
"""Sizes that differ by a smaller share are not told apart."""


class Measured(NamedTuple):
    """One step of so many samples. `peak_bytes` is None where it ran out of memory."""

    samples: int
    peak_bytes: int | None


class Line(NamedTuple):
    """peak = fixed_bytes + bytes_per_sample x samples; `residual_bytes` is the largest distance of a point from it."""

    fixed_bytes: float
    bytes_per_sample: float
    residual_bytes: float

    def samples_at(self, limit_bytes: float) -> float:
        """The size at which the peak is the limit; infinite where the peak does not grow."""
        if self.bytes_per_sample <= 0:
            return float("inf")
        return (limit_bytes - self.fixed_bytes) / self.bytes_per_sample


def fit_line(measured: Sequence[Measured]) -> Line:
    """Least squares through the sizes that ran, at least two different ones."""
    points = [(one.samples, one.peak_bytes) for one in measured if one.peak_bytes is not None]
    samples, peaks = np.array(points, dtype=np.float64).T
    slope, fixed = np.polyfit(samples, peaks, 1)
    return Line(float(fixed), float(slope), float(np.abs(peaks - fixed - slope * samples).max()))


def largest_that_fits(measured: Sequence[Measured], *, limit_bytes: int) -> int | None:
    """The largest size that ran within the limit, below every one that did not."""
    beyond = _smallest_beyond(measured, limit_bytes)
    fits = [one.samples for one in measured if _fits(one, limit_bytes) and (beyond is None or one.samples < beyond)]
    return max(fits, default=None)


def next_samples(measured: Sequence[Measured], *, limit_bytes: int, most: int) -> int | None:
    """The size to run next, at most `most`; None when the largest that fits is found, to within CLOSE, or none fits.

    It lies where the line meets the limit: that of all points or, where memory grows faster than linearly, that through
    the two largest, whichever comes first. It is at most GROWTH times what ran, and halves the way to what did not.
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


def _target(measured: Sequence[Measured], limit_bytes: int) -> float:
    ran = sorted(one for one in measured if one.peak_bytes is not None)
    if len({one.samples for one in ran}) < 2:
        return float("inf")
    return min(fit_line(part).samples_at(limit_bytes) for part in (ran, ran[-2:]))


def _smallest_beyond(measured: Sequence[Measured], limit_bytes: int) -> int | None:
    return min((one.samples for one in measured if not _fits(one, limit_bytes)), default=None)


def _fits(one: Measured, limit_bytes: int) -> bool:
    return one.peak_bytes is not None and one.peak_bytes <= limit_bytes
