"""Number or category that decides a sample's bucket."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import (
    ByteColumn,
    BytesListColumn,
    Dataset,
    ListColumn,
    TextColumn,
    ValueColumn,
    mapped_zeros,
    position_blocks,
)
from headrace.errors import UsageError
from headrace.plan.batching import MOST_BUCKETS
from headrace.plan.step_views import ImageSizes, Ints

Numbers: TypeAlias = Callable[[Ints], NDArray[np.float64]]
"""Function from positions to numbers; NaN for a missing number."""
Categories: TypeAlias = Callable[[Ints], Ints]
"""Function from positions to category numbers; -1 for a missing category."""

_CALLED = 1 << 12  # samples per block of calls


_MEASURES = {"aspect": lambda height, width: width / height, "size": lambda height, width: height * width}
_KINDS = {
    "orientation": lambda height, width: (height > width).astype(np.int64),
    "size": lambda height, width: height << 32 | width,
}


def size_numbers(by: str, sizes: ImageSizes) -> Numbers:
    """Return width / height ("aspect") or the pixels ("size")."""

    def of(positions: Ints) -> NDArray[np.float64]:
        found = sizes(positions).astype(np.float64)
        height, width = np.where(found > 0, found, np.nan).T
        number: NDArray[np.float64] = _MEASURES[by](height, width)
        return number

    return of


def size_categories(by: str, sizes: ImageSizes) -> Categories:
    """Return 0 for landscape and squares, 1 for portrait ("orientation"), or height and width combined ("size")."""

    def of(positions: Ints) -> Ints:
        height, width = sizes(positions).astype(np.int64).T
        return np.where(height > 0, _KINDS[by](height, width), -1)

    return of


def lengths(dataset: Dataset, name: str) -> Numbers:
    """Return a column's numbers, or the lengths of its entries. Raises UsageError for an unknown column."""
    column = dataset.columns.get(name)
    if column is None:
        have = ", ".join(dataset.columns)
        raise UsageError(f"Buckets: expected source to be a column of the dataset, got {name!r}; it has {have}")

    def of(positions: Ints) -> NDArray[np.float64]:
        ids = positions if dataset.base_ids is None else dataset.base_ids[positions]
        if isinstance(column, ValueColumn):
            found = column.take(ids).astype(np.float64)
        elif isinstance(column, TextColumn):
            found = column.strings.take(ids).lengths().astype(np.float64)
        elif isinstance(column, ListColumn):
            found = (column.offsets[ids + 1] - column.offsets[ids]).astype(np.float64)
        else:
            assert isinstance(column, ByteColumn)
            found = _bytes(column, ids)
        return np.where(found >= 0, found, np.nan)

    return of


def token_lengths(dataset: Dataset, known: NDArray[np.int32]) -> Numbers:
    """Return the token counts in `known`, which are by base id; a negative count is missing."""

    def of(positions: Ints) -> NDArray[np.float64]:
        found = known[positions if dataset.base_ids is None else dataset.base_ids[positions]]
        return np.where(found >= 0, found.astype(np.float64), np.nan)

    return of


def _bytes(column: ByteColumn, ids: Ints) -> NDArray[np.float64]:
    at = column.locate(ids)
    if at.length is not None:
        return at.length.astype(np.float64)
    return np.array([_file_bytes(column.path(at, row)) for row in range(len(ids))])


def _file_bytes(path: bytes) -> float:
    try:
        return float(os.stat(path).st_size)
    except OSError:
        return np.nan


def called_numbers(by: Callable[..., Any], dataset: Dataset, sizes: ImageSizes | None) -> Numbers:
    """Call `by` once for each sample, and return its numbers."""
    found: NDArray[np.float64] = mapped_zeros((len(dataset),), np.float64)
    for position, sample, value in _calls(by, dataset, sizes):
        try:
            found[position] = float(value)
        except (TypeError, ValueError):
            raise UsageError(
                f"Buckets: expected by to return a number, as count or edges were given, got {value!r} for sample "
                f"{sample['__key__']!r}"
            ) from None
    return lambda positions: found[positions]


def called_categories(by: Callable[..., Any], dataset: Dataset, sizes: ImageSizes | None) -> Categories:
    """Call `by` once for each sample, and return its categories, numbered by first appearance."""
    found: NDArray[np.int64] = mapped_zeros((len(dataset),), np.int64)
    seen: dict[Hashable, int] = {}
    for position, sample, value in _calls(by, dataset, sizes):
        if isinstance(value, float) and np.isnan(value):  # nan equals nothing, so each would be a bucket
            raise UsageError(
                f"Buckets: expected by to return a category, got nan for sample {sample['__key__']!r}; for numbers "
                "give count or edges"
            )
        try:
            found[position] = seen.setdefault(value, len(seen))
        except TypeError:
            raise UsageError(
                f"Buckets: expected by to return a hashable category, got {value!r} for sample {sample['__key__']!r}; "
                "for numbers give count or edges"
            ) from None
        if len(seen) > MOST_BUCKETS:
            raise too_many_buckets()
    return lambda positions: found[positions]


def too_many_buckets() -> UsageError:
    return UsageError(f"Buckets: expected at most {MOST_BUCKETS} different categories, got more; give count or edges")


def _calls(
    by: Callable[..., Any], dataset: Dataset, sizes: ImageSizes | None
) -> Iterator[tuple[int, dict[str, Any], Any]]:
    for piece in position_blocks(len(dataset)):
        for first in range(0, len(piece), _CALLED):
            positions = piece[first : first + _CALLED]
            for position, sample in zip(positions.tolist(), _known(dataset, positions, sizes), strict=True):
                try:
                    value = by(sample)
                except Exception as error:
                    error.add_note(f"in by= of Buckets, for sample {sample['__key__']!r}")
                    raise
                yield position, sample, value


def _known(dataset: Dataset, positions: Ints, sizes: ImageSizes | None) -> Iterator[dict[str, Any]]:
    """Yield the values of these samples that the dataset holds, without reading a sample."""
    ids = positions if dataset.base_ids is None else dataset.base_ids[positions]
    columns: dict[str, list[Any]] = {"__key__": list(dataset.table.keys.take(ids))}
    for name, column in dataset.columns.items():
        if not isinstance(column, ByteColumn | BytesListColumn):
            values = column.take(ids)
            columns[name] = values.tolist() if isinstance(values, np.ndarray) else values
    if sizes is not None:
        columns["height"], columns["width"] = sizes(positions).T.tolist()
    for row in zip(*columns.values(), strict=True):
        yield dict(zip(columns, row, strict=True))
