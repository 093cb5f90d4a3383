"""What a dataset's lists say of each instance of a sample: numbers out of columns, or out of their JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset, ListColumn, TextColumn
from headrace.data.strings import Strings
from headrace.errors import DatasetError, UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Form = Callable[[NDArray[Any]], Floats | None]
"""Brings numbers into the one form that a field wants, an instance a row; None where they have another."""


@dataclass(frozen=True)
class Instances:
    """A column of lists whose numbers are read for a batch at once."""

    dataset: Dataset
    field: str
    column: str
    form: Form
    expected: str
    """The form in words, for errors."""

    def __post_init__(self) -> None:
        """Raises UsageError where the column cannot have such lists, as far as its type tells."""
        column = self.dataset.columns.get(self.column)
        if isinstance(column, ListColumn) and not isinstance(column.items, Strings) and column.items.ndim > 1:
            if self.form(column.items[:0]) is None:
                raise UsageError(f"{self._place}: expected {self.expected}, got items of {column.items.shape[1:]}")
        elif not isinstance(column, ListColumn | TextColumn):
            raise UsageError(f"{self._place}: {not_a_list(self.dataset, self.column)}")

    def take(self, samples: Ints) -> tuple[Floats, Ints]:
        """The instances of the samples at these positions, one after another, and how many each has. Raises
        DatasetError that names the first sample whose list has another form."""
        found = self._together(samples)
        if found is not None:
            return found
        # Forms that differ, or one that is wrong: which, each alone tells.
        alone = [self._alone(int(sample)) for sample in samples]
        held = [each for each in alone if len(each)] or alone[:1]
        return np.concatenate(held), np.array([len(each) for each in alone], np.int64)

    def first(self) -> Floats | None:
        """Those of the first sample that has any."""
        for start in range(0, len(self.dataset), _BLOCK):
            block = np.arange(start, min(start + _BLOCK, len(self.dataset)))
            found = self._together(block)
            each = [found[0]] if found is not None else map(self._alone, block.tolist())
            if (first := next((some for some in each if len(some)), None)) is not None:
                return first
        return None

    def _alone(self, sample: int) -> Floats:
        found = self._together(np.array([sample]))
        if found is None:
            column = self.dataset.columns[self.column]
            got = column.take(self.base_ids(np.array([sample])))[0]  # type: ignore[union-attr]  # lists or texts
            text = str(got.tolist() if isinstance(got, np.ndarray) else got)
            raise self.error(sample, f"expected {self.expected}, got {text[:80]!r}")
        return found[0]

    def _together(self, samples: Ints) -> tuple[Floats, Ints] | None:
        """None where any has another form, or not all have the same."""
        try:
            numbers, counts = self._numbers(self.base_ids(samples))
            found = self.form(numbers if numbers.size else np.empty((0, *numbers.shape[1:])))
        except (ValueError, TypeError, RecursionError, msgspec.DecodeError):
            return None
        if found is None or len(found) == len(numbers):
            return None if found is None else (found, counts)
        each = len(numbers) // len(found) if len(found) else 1  # numbers in a row, so many an instance
        return None if (counts % each).any() else (found, counts // each)

    def _numbers(self, ids: Ints) -> tuple[NDArray[Any], Ints]:
        """All items of the lists, on end. Raises what decoding raises where they are no JSON of numbers."""
        column = self.dataset.columns[self.column]
        if isinstance(column, TextColumn):
            lists = _decode(f"[{','.join(text or '[]' for text in column.take(ids))}]")
            joined = np.array([item for each in lists for item in each], np.float64)
            return joined, np.array([len(each) for each in lists], np.int64)
        assert isinstance(column, ListColumn)
        items, counts = column.take_joined(ids)
        if isinstance(items, np.ndarray):
            return items, counts
        decoded = np.array(_decode(f"[{','.join(items)}]"), np.float64)
        if len(decoded) != len(items):
            raise ValueError("a text of several values")
        return decoded, counts

    def base_ids(self, samples: Ints) -> Ints:
        return samples if self.dataset.base_ids is None else self.dataset.base_ids[samples]

    def error(self, sample: int, why: str) -> DatasetError:
        """What is wrong with one sample's list."""
        key = self.dataset.key(sample)
        return DatasetError(f"{self._place} of sample {key!r}: {why}. Correct it, or leave the sample out by select()")

    @property
    def _place(self) -> str:
        return f"field {self.field!r}, column {self.column!r}"


_BLOCK = 1024
_decode = msgspec.json.Decoder(list[Any]).decode


def not_a_list(dataset: Dataset, name: str) -> str:
    """What to say of a column that is to be one of lists."""
    column = dataset.columns.get(name)
    if column is not None:
        return f"expected a column of lists, got {name!r}, one of {column.kind}"
    return f"expected a column of the dataset, got {name!r}; it has {', '.join(dataset.columns)}. Name one with source="


def as_boxes(numbers: NDArray[Any]) -> Floats | None:
    """float64 [m, 4], of [m, 4] or all of them in a row."""
    if numbers.ndim == 1 and numbers.size % 4 == 0:
        numbers = numbers.reshape(-1, 4)
    return numbers.astype(np.float64) if numbers.ndim == 2 and numbers.shape[1] == 4 else None


def as_points(numbers: NDArray[Any], count: int | None = None) -> Floats | None:
    """float64 [m, K, 3], of [m, K, 3], [m, K, 2] or [m, 3K]; of that `count` of points K, where it is given."""
    if numbers.size == 0:
        return np.empty((0, count or 0, 3)) if numbers.ndim in (1, 2, 3) and _may_be_points(numbers) else None
    if numbers.ndim == 2 and numbers.shape[1] % 3 == 0:
        numbers = numbers.reshape(len(numbers), numbers.shape[1] // 3, 3)
    if numbers.ndim != 3 or numbers.shape[2] not in (2, 3) or count not in (None, numbers.shape[1]):
        return None
    points = np.full((*numbers.shape[:2], 3), 2.0)
    points[..., : numbers.shape[2]] = numbers
    return points


def _may_be_points(empty: NDArray[Any]) -> bool:
    """Whether so shaped an array of no instances would hold points, had it any."""
    last = empty.shape[-1]
    return empty.ndim == 1 or (last % 3 == 0 if empty.ndim == 2 else last in (2, 3))
