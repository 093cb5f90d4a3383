"""Indices, masks, slices and random splits as positions, and the keys of random draws for repeated samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.errors import UsageError

Positions = npt.NDArray[np.int64]
Selector = slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]

_FUZZ = Fraction(1, 10**9)  # thirds do not sum to 1 in floats

DRAW_BITS = 36
"""Bits of a draw id for the base id; the bits above hold the occurrence (core/rng/stream.hpp)."""
MOST_OCCURRENCES = 1 << 63 - DRAW_BITS


def positions(which: Selector, size: int) -> Positions:
    """Return the positions that `which` selects among `size` samples, none negative."""
    if isinstance(which, slice):
        return np.arange(*which.indices(size), dtype=np.int64)
    array = np.asarray(which)
    if array.ndim != 1:
        raise UsageError(f"expected a slice, a list of indices or a mask, got an array of shape {array.shape}")
    if array.dtype == bool:
        if len(array) != size:
            raise UsageError(f"expected a mask of {size} entries, one a sample, got {len(array)}")
        return np.flatnonzero(array)
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype.kind not in "iu":
        raise UsageError(f"expected indices as integers or a mask of booleans, got {array.dtype}")
    wrong = (array >= size) | (array < -size)
    if wrong.any():
        raise UsageError(f"expected indices from {-size} to {size - 1}, got {array[wrong][0]}")
    return np.where(array < 0, array.astype(np.int64) + size, array.astype(np.int64))


def checked_mask(mask: object) -> npt.NDArray[np.bool_]:
    """Return the mask that `filter` got instead of a function. Raises UsageError for anything else."""
    array = np.asarray(mask)
    if mask is None or array.dtype != bool:
        raise UsageError(
            f"filter: expected a function of a sample, a mask of booleans or values of columns, such as label=3, got "
            f"{mask!r}; select() takes indices"
        )
    return array


def occurrences(ids: Positions, size: int) -> npt.NDArray[Any] | None:
    """Return how often each of `ids` occurred before in the list; None if all are distinct.

    The result has the smallest unsigned type. `size` is the number of samples that `ids` index. Raises UsageError for
    more occurrences than a draw id can hold.
    """
    if (ids[1:] > ids[:-1]).all():
        return None
    # Counting takes no more memory than sorting if the list is about as long as the dataset.
    if size <= 4 * len(ids) and np.bincount(ids, minlength=size).max() == 1:
        return None
    order = np.argsort(ids, kind="stable")
    firsts = np.flatnonzero(np.diff(ids[order], prepend=-1))
    lengths = np.diff(firsts, append=len(ids))
    most = int(lengths.max())
    if most == 1:
        return None
    largest = int(ids[order[-1]])
    if largest >> DRAW_BITS:
        raise UsageError(
            f"select: expected base ids below {1 << DRAW_BITS:,} in a selection that repeats samples, got {largest:,}; "
            "select each sample once, or open fewer at a time"
        )
    if most > MOST_OCCURRENCES:
        raise UsageError(
            f"select: expected a sample at most {MOST_OCCURRENCES:,} times in a selection, got one {most:,} times; "
            "select it fewer times, and take more epochs"
        )
    numbers = np.arange(len(ids)) - np.repeat(firsts, lengths)
    found = np.empty(len(ids), np.min_scalar_type(most - 1))
    found[order] = numbers
    return found


def draw_ids(ids: Positions, numbers: npt.NDArray[Any]) -> Positions:
    """Return the keys of draws for samples `ids`; `numbers` counts the earlier occurrences of each.

    Each pair has a distinct key; a first occurrence has the id itself.
    """
    return ids | numbers.astype(np.int64) << DRAW_BITS


def last_places(ids: Positions, size: int) -> tuple[Positions, list[tuple[int, int]]]:
    """Return each sample's last position in a selection (0: none), and (earlier, last) pairs of repeats."""
    place = np.zeros(size, np.int64)
    place[ids] = np.arange(len(ids))
    earlier = np.flatnonzero(place[ids] != np.arange(len(ids)))
    return place, list(zip(earlier.tolist(), place[ids[earlier]].tolist(), strict=True))


def split_positions(ids: Positions, fractions: Sequence[float], seed: int) -> list[Positions]:
    """Return disjoint random parts of the positions of `ids`, each in ascending order.

    The draw depends only on (seed, id), by splitmix64 (Steele, Lea and Flood, 2014), not on a library's random
    generator.
    """
    order = np.argsort(_mix(ids.astype(np.uint64) ^ _mix(np.array([seed % 2**64], np.uint64))), kind="stable")
    bounds = np.cumsum([0, *split_counts(len(ids), fractions)])
    return [np.sort(order[start:stop]) for start, stop in pairwise(bounds)]


def checked_shares(given: Sequence[Any]) -> tuple[list[str] | None, list[float]]:
    """Return the names of parts, if any, and their shares, from the arguments of `split`."""
    only = given[0] if len(given) == 1 else given
    names = list(only) if isinstance(only, Mapping) else None
    shares = list(only.values() if isinstance(only, Mapping) else only) if isinstance(only, Iterable) else [only]
    numbers = all(isinstance(share, int | float) and math.isfinite(share) for share in shares)
    if not shares or not numbers or min(shares) < 0:
        raise UsageError(f"expected fractions from 0 to 1, such as split(0.9, 0.1), got {only!r}")
    return names, [only, 1 - only] if only is not given and isinstance(only, float) and only < 1 else shares


def split_counts(size: int, fractions: Sequence[float]) -> list[int]:
    """Return whole counts for `fractions` of `size`: rounded down, with the rest to the largest remainders."""
    exact = [Fraction(repr(float(part))) * size for part in fractions]
    if sum(exact) > size * (1 + _FUZZ):
        raise UsageError(f"expected fractions that sum to at most 1, got {tuple(fractions)}")
    counts = [math.floor(part) for part in exact]
    total = math.floor(sum(exact) + size * _FUZZ)
    by_remainder = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i])
    for i in by_remainder[: total - sum(counts)]:
        counts[i] += 1
    return counts


def _mix(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Apply the step and finalizer of splitmix64 elementwise, modulo 2**64."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
