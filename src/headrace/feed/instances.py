"""What a dataset's lists say of each instance of a sample: numbers out of columns, or out of their JSON."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset, ListColumn, TextColumn
from headrace.errors import DatasetError, UsageError

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Form = Callable[[NDArray[Any]], Floats | None]
"""Brings a sample's numbers into the one form that a field wants; None where they have another."""


@dataclass(frozen=True)
class Instances:
    """A column of lists whose numbers are read for a batch at once. Rows are samples, by base id."""

    dataset: Dataset
    field: str
    column: str
    form: Form
    expected: str
    """The form in words, for errors."""

    def __post_init__(self) -> None:
        """Raises UsageError where the column cannot have such lists, as far as its type tells."""
        column = self.dataset.columns.get(self.column)
        if isinstance(column, ListColumn) and isinstance(column.items, np.ndarray) and column.items.ndim > 1:
            if self.form(column.items[:0]) is None:
                raise UsageError(f"{self._place}: expected {self.expected}, got items of {column.items.shape[1:]}")
        elif not isinstance(column, ListColumn | TextColumn):
            raise UsageError(f"{self._place}: {not_a_list(self.dataset, self.column)}")

    def take(self, samples: Ints) -> list[Floats]:
        """Each sample's numbers, by position in the dataset. Raises DatasetError that names the first of another
        form."""
        return [self._read(int(sample), value) for sample, value in zip(samples, self._values(samples), strict=True)]

    def first(self) -> Floats | None:
        """Those of the first sample that has any."""
        for start in range(0, len(self.dataset), _BLOCK):
            samples = np.arange(start, min(start + _BLOCK, len(self.dataset)))
            for found in self.take(samples):
                if len(found):
                    return found
        return None

    def _values(self, samples: Ints) -> Sequence[Any]:
        column = self.dataset.columns[self.column]
        assert isinstance(column, ListColumn | TextColumn)
        return column.take(samples if self.dataset.base_ids is None else self.dataset.base_ids[samples])

    def _read(self, sample: int, value: Any) -> Floats:
        try:
            numbers = value if isinstance(value, np.ndarray) else _parse(value)
            found = self.form(numbers) if numbers.size else self.form(np.empty((0, *numbers.shape[1:])))
        except (ValueError, TypeError):
            found = None
        if found is None:
            got = str(value.shape) if isinstance(value, np.ndarray) else repr(value)[:80]
            raise self.error(sample, f"expected {self.expected}, got {got}")
        return found

    def error(self, sample: int, why: str) -> DatasetError:
        """What is wrong with one sample's list."""
        key = self.dataset.key(sample)
        return DatasetError(f"{self._place} of sample {key!r}: {why}. Correct it, or leave the sample out by select()")

    @property
    def _place(self) -> str:
        return f"field {self.field!r}, column {self.column!r}"


_BLOCK = 1024
_decode = msgspec.json.Decoder(list[Any]).decode


def _parse(value: str | list[str]) -> NDArray[Any]:
    """The text of one JSON list, or of one an instance. Raises ValueError or TypeError."""
    text = value if isinstance(value, str) else f"[{','.join(value)}]"
    return np.array(_decode(text) if text else [], np.float64)


def not_a_list(dataset: Dataset, name: str) -> str:
    """What to say of a column that is to be one of lists."""
    column = dataset.columns.get(name)
    if column is not None:
        return f"expected a column of lists, got the {column.kind}s of {name!r}"
    return f"expected a column of the dataset, got {name!r}; it has {', '.join(dataset.columns)}. Name one with source="


def as_boxes(numbers: NDArray[Any]) -> Floats | None:
    """float64 [m, 4], of [m, 4] or all of them in a row."""
    if numbers.ndim == 1 and numbers.size % 4 == 0:
        numbers = numbers.reshape(-1, 4)
    return numbers.astype(np.float64) if numbers.ndim == 2 and numbers.shape[1] == 4 else None


def as_points(numbers: NDArray[Any]) -> Floats | None:
    """float64 [m, K, 3], of [m, K, 3], [m, K, 2] or [m, 3K]; K is 0 where nothing tells it."""
    if numbers.ndim == 1 and numbers.size == 0:
        return np.empty((0, 0, 3))
    if numbers.ndim == 2 and numbers.shape[1] % 3 == 0:
        return numbers.reshape(len(numbers), numbers.shape[1] // 3, 3).astype(np.float64)
    if numbers.ndim != 3 or numbers.shape[2] not in (2, 3):
        return None
    points = np.full((*numbers.shape[:2], 3), 2.0)
    points[..., : numbers.shape[2]] = numbers
    return points
