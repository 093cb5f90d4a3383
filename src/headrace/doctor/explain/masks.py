"""Explanation of a class array by the label image that it was made from: geometry, and a table of values."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from headrace.doctor.explain.pictures import layouts, shown_part, sided
from headrace.doctor.explain.placements import Array, LeafPlacement, Sighting, cut, every_placement
from headrace.doctor.explain.resampling import taps

NEAREST = ("nearest-pillow", "nearest-exact", "nearest-opencv", "nearest-torch")
Explained = TypeVar("Explained")
_MOST_VALUES = 1024
_PIXELS_A_VALUE = 16
"""Minimum pixels of a leaf per distinct value: a table for nearly every pixel could make any leaf."""
_OUTSIDE = -1
"""Placeholder for the file's value in padding."""
MOST_OTHERS = 1e-3
"""Share of a leaf's values that may deviate: positions between two pixels round either way."""
_STRIDE, _OTHERS_OF_GRID = 8, 2e-2
"""Distance between the pixels of a grid, and the share of its values that may deviate."""


@dataclass(frozen=True)
class MaskExplanation:
    """Recipe of a class leaf from a label image, the same in all samples except for the placements."""

    layout: str
    filter: str | None
    """Nearest filter of `resampling.FILTERS`; None without resampling."""
    table: dict[int, float]
    """Leaf value of each file value; a colour is `(red << 16) + (green << 8) + blue`."""
    placements: tuple[LeafPlacement, ...]
    fill: float | None = None
    """Leaf value in padding; None without padding."""


def explain_mask(seen: Sequence[Sighting], shared: Sequence[LeafPlacement] | None = None) -> MaskExplanation | None:
    """Return how leaves are made from label images, maybe at `shared` placements; None without a common table."""
    if not all(each.leaf.size for each in seen) or all(each.leaf.min() == each.leaf.max() for each in seen):
        return None
    for layout in layouts(seen[0].leaf):
        if sided(seen[0].leaf, layout).shape[2] != 1:
            continue
        every = (every_placement(sided(each.leaf, layout), each) for each in seen)
        searches = [itertools.tee(each, len(NEAREST)) for each in (every if shared is None else zip(shared))]
        best = least_wrong(
            _by_filter(name, layout, seen, found) for name, *found in zip(NEAREST, *searches, strict=True)
        )
        if best is not None:
            return best
    return None


def least_wrong(explained: Iterable[tuple[float, Explained] | None]) -> Explained | None:
    """Return the explanation of the least error, up to the first without any: several filters may fit the limits."""
    best: tuple[float, Explained] | None = None
    for each in explained:
        best = each if best is None or (each is not None and each[0] < best[0]) else best
        if best is not None and best[0] == 0:
            break
    return None if best is None else best[1]


def _by_filter(
    name: str, layout: str, seen: Sequence[Sighting], searches: Sequence[Iterator[LeafPlacement]]
) -> tuple[float, MaskExplanation] | None:
    """Return the number of values that deviate, and the explanation by a filter."""
    table: dict[int, float] = {}
    others = 0
    found: list[LeafPlacement] = []
    for each, search in zip(seen, searches, strict=True):
        leaf, source = sided(each.leaf, layout)[..., 0], _coded(each.source)
        for placement in search:
            shown = shown_values(source, placement, name, leaf.shape, _OUTSIDE)
            its = None if shown is None or not _may_fit(leaf, shown) else _table(leaf, shown)
            if its is not None and all(table.get(key, value) == value for key, value in its[0].items()):
                table |= its[0]
                others += its[1]
                found.append(placement)
                break
        else:
            return None
    is_resampled = any(one.is_resampled for one in found)
    fill = table.pop(_OUTSIDE, None)
    by = MaskExplanation(layout, name if is_resampled else None, dict(sorted(table.items())), tuple(found), fill)
    return others if is_resampled else 0, by


def _coded(source: Array) -> Array:
    """Return a label image with one number per pixel."""
    if source.ndim == 2:
        return source.astype(np.int64)
    codes: Array = source[..., :3].astype(np.int64) @ np.array([1 << 16, 1 << 8, 1][-source[..., :3].shape[2] :])
    return codes


def shown_values(
    source: Array, placement: LeafPlacement, name: str, shape: tuple[int, ...], outside: int | None = None
) -> Array | None:
    """Return the file's values shown in the leaf, and `outside` in its padding.

    None for padding without such a value, and for a leaf of padding alone.
    """
    shape = shape[1::-1] if placement.is_transposed else shape
    rows, columns = shown_part(shape, placement)
    is_padded = (len(rows), len(columns)) != shape[:2]
    if not len(rows) or not len(columns) or (is_padded and outside is None):
        return None
    pixels, (top, left) = cut(source, placement.window), placement.at
    down = taps(name, pixels.shape[0], placement.size[0], rows + top, backward=placement.backward[0]).pixel[:, 0]
    across = taps(name, pixels.shape[1], placement.size[1], columns + left, backward=placement.backward[1]).pixel[:, 0]
    shown: Array = pixels[np.ix_(down, across)]
    if is_padded:
        values = np.full(shape[:2], outside, np.int64)
        values[np.ix_(rows, columns)] = shown
        shown = values
    return placement.turned(shown)


def _may_fit(leaf: Array, shown: Array) -> bool:
    """Return False if too many values deviate on a grid of pixels, to save the table of all."""
    grid = leaf[::_STRIDE, ::_STRIDE]
    return _table_of(grid, shown[::_STRIDE, ::_STRIDE])[1] <= _OTHERS_OF_GRID * grid.size


def _table(leaf: Array, shown: Array) -> tuple[dict[int, float], int] | None:
    """Return the leaf's value of each value of the file, and how many deviate; None if one value becomes several."""
    table, others = _table_of(leaf, shown)
    is_table = len(table) <= min(_MOST_VALUES, leaf.size // _PIXELS_A_VALUE) and others <= MOST_OTHERS * leaf.size
    return (table, others) if is_table else None


def _table_of(leaf: Array, shown: Array) -> tuple[dict[int, float], int]:
    codes, which = np.unique(shown, return_inverse=True)
    values, place = np.unique(leaf, return_inverse=True)
    if len(codes) > _MOST_VALUES:
        return {}, leaf.size
    counts = np.zeros((len(codes), len(values)), np.int64)
    np.add.at(counts, (which.ravel(), place.ravel()), 1)
    others = leaf.size - int(counts.max(axis=1).sum())
    return dict(zip(codes.tolist(), values[counts.argmax(axis=1)].tolist(), strict=True)), others
