"""Numbers counted into bars."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

_BARS = 24
_WIDE = 16.0
"""From this ratio of the largest to the smallest on, bars grow by a factor."""


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` numbers lie in [`edges[i]`, `edges[i + 1]`), the largest in the last bar."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    smallest: float
    median: float
    largest: float
    is_logarithmic: bool
    """Whether bars grow by a factor and not by a step."""


def histogram(values: npt.ArrayLike) -> Histogram | None:
    """None where there is nothing to count. Whole numbers get bars of whole width, and no more bars than values."""
    numbers = np.asarray(values)
    if not len(numbers):
        return None
    is_logarithmic = numbers.min() > 0 and float(numbers.max()) / float(numbers.min()) >= _WIDE
    edges = _edges(numbers, is_logarithmic=is_logarithmic)
    counts, _ = np.histogram(numbers, edges)
    low, middle, high = np.quantile(numbers, (0, 0.5, 1))
    return Histogram(
        tuple(edges.tolist()), tuple(counts.tolist()), float(low), float(middle), float(high), is_logarithmic
    )


def _edges(numbers: npt.NDArray[np.generic], *, is_logarithmic: bool) -> npt.NDArray[np.float64]:
    low, high = float(numbers.min()), float(numbers.max())
    whole = numbers.dtype.kind in "iu"
    if high == low:
        return np.array([low, low + 1])
    if is_logarithmic:
        edges = np.geomspace(low, high, _BARS + 1)
        edges = np.unique(np.round(edges)) if whole else edges
    elif whole:
        step = max(1.0, np.ceil((high - low + 1) / _BARS))
        edges = np.arange(low, high + step + 1, step)
    else:
        edges = np.linspace(low, high, _BARS + 1)
    edges[-1] = max(edges[-1], high)
    return edges
