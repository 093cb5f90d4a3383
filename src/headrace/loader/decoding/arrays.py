"""Fields that Python makes, and two of them: arrays of numbers, and keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace._core import Limits
from headrace.data import Dataset, HeldColumn, ListColumn, Strings, TooLargeError, ValueColumn, array_files
from headrace.errors import DecodeError, LimitError, SampleError, UsageError
from headrace.fields import Array, KeyKind
from headrace.loader.batch_values import BatchRows

Ints: TypeAlias = NDArray[np.int64]
Raws: TypeAlias = Sequence[Sequence[bytes]]
"""Bytes of each of the recipe's raw fields, by row."""


class FieldContent(Protocol):
    """Field that Python makes."""

    @property
    def name(self) -> str: ...

    def take(self, rows: BatchRows, raws: Raws) -> list[Any]:
        """Return each row's content, or the SampleError of a bad row."""
        ...

    def join(self, contents: list[Any], rows: BatchRows, longest: int) -> dict[str, Any]:
        """Return the parts of the batch by their flat names.

        `longest` is the tokens of the longest text over all ranks, 0 if unknown. Raises UsageError for contents that do
        not go together.
        """
        ...


@dataclass(frozen=True)
class ColumnOrigin:
    """Source of a field's contents, for errors."""

    dataset: Dataset
    field: str
    column: str
    read: bool
    """True if the contents are read from members or files."""

    def error(self, kind: type[SampleError], why: str, sample: int) -> SampleError:
        dataset, table = self.dataset, self.dataset.table
        offset: int | None = None
        if self.read:
            shard, offset = dataset.where(self.column, sample)
            named = dataset.named(self.column, sample)
            why = why if named is None else f"{why} ({named})"
        else:
            base_id = sample if dataset.base_ids is None else int(dataset.base_ids[sample])
            shard = table.source if table.origin is None else table.origin.of(base_id)
        return kind(why, key=dataset.key(sample), shard=shard, offset=offset, field=self.field)


Numbers: TypeAlias = NDArray[Any]

_KINDS = "biufc"
_MOST_BYTES = {"c": 16}
"""Maximum bytes of a number, by kind (default 8): numpy's longdouble is another type on each machine."""


@dataclass(frozen=True)
class ArrayContent:
    """Array field of a dataset."""

    dataset: Dataset
    name: str
    field: Array
    column: str
    raw: int | None
    """Position among the recipe's raw fields; None if the dataset holds the numbers."""
    limits: Limits

    def take(self, rows: BatchRows, raws: Raws) -> list[Any]:
        if self.raw is not None:
            return [self._read(data, int(sample)) for data, sample in zip(raws[self.raw], rows.samples, strict=True)]
        found = self.dataset.columns[self.column]
        assert isinstance(found, ListColumn | ValueColumn), "`check_held` has seen to it"
        values = found.take(rows.base_ids)
        return [
            self._fitting(np.asarray(value), int(sample)) for value, sample in zip(values, rows.samples, strict=True)
        ]

    def _read(self, data: bytes, sample: int) -> Numbers | SampleError:
        try:
            return self._fitting(array_files.read_numbers(data, self.limits), sample)
        except TooLargeError as error:
            why = f"{error}; raise it with limits=headrace.Limits(...) if you trust the file"
            return self._origin.error(LimitError, why, sample)
        except ValueError as error:
            return self._origin.error(DecodeError, str(error), sample)

    def _fitting(self, values: Numbers, sample: int) -> Numbers | SampleError:
        """Return the values in the field's type and shape."""
        shape, dtype = self.field.shape, self.field.dtype
        if values.dtype.kind not in _KINDS:
            return self._origin.error(DecodeError, f"expected numbers, got an array of {values.dtype}", sample)
        if shape is not None and values.shape != shape:
            why = f"expected an array of shape {list(shape)}, got {list(values.shape)}"
            return self._origin.error(DecodeError, why, sample)
        if dtype is None and values.dtype.itemsize > _MOST_BYTES.get(values.dtype.kind, 8):
            why = f"expected numbers of a type that tensors have, got {values.dtype}; take them with Array(dtype=…)"
            return self._origin.error(DecodeError, why, sample)
        if dtype is None:
            return values.astype(values.dtype.newbyteorder("="), copy=False)
        if not np.can_cast(values.dtype, dtype, "same_kind"):
            why = f"expected numbers that dtype={dtype!r} takes, got {values.dtype}"
            return self._origin.error(DecodeError, why, sample)
        with np.errstate(over="ignore"):  # infinite, as the field documents
            return values.astype(dtype, copy=False)

    @property
    def _origin(self) -> ColumnOrigin:
        return ColumnOrigin(self.dataset, self.name, self.column, read=self.raw is not None)

    def join(self, contents: list[Numbers], rows: BatchRows, longest: int) -> dict[str, NDArray[Any]]:
        if not contents:
            return {self.name: np.empty((0, *(self.field.shape or ())), self.field.dtype or np.float32)}
        first = contents[0]
        for row, values in enumerate(contents):
            if values.shape == first.shape and values.dtype == first.dtype:
                continue
            advice = "Array(dtype=…)"
            if first.shape != values.shape:
                advice = "Array(shape=…), which makes the others bad samples"
            key, odd = self.dataset.key(int(rows.samples[0])), self.dataset.key(int(rows.samples[row]))
            raise UsageError(
                f"field {self.name!r}: expected arrays of one shape and type in a batch, got {first.dtype} "
                f"{list(first.shape)} (sample {key!r}) and {values.dtype} {list(values.shape)} (sample {odd!r}); give "
                f"{advice}, or take them as they are with Raw()"
            )
        return {self.name: np.stack(contents)}


@dataclass(frozen=True)
class KeyContent:
    """Keys, paths or positions of a dataset's samples."""

    dataset: Dataset
    name: str
    what: KeyKind
    column: str | None
    """Column of the files, for paths; else None."""

    def take(self, rows: BatchRows, raws: Raws) -> list[Any]:
        if self.column is not None:
            return self.dataset.paths(self.column, rows.samples)
        return list(self.dataset.table.keys.take(rows.base_ids)) if self.what == "key" else rows.samples.tolist()

    def join(self, contents: list[Any], rows: BatchRows, longest: int) -> dict[str, Any]:
        return {self.name: np.array(contents, np.int64) if self.what == "index" else contents}


def check_held(field: str, name: str, found: HeldColumn) -> None:
    """Raise UsageError unless the column holds numbers."""
    lists = isinstance(found, ListColumn) and not isinstance(found.items, Strings)
    numbers = lists or isinstance(found, ValueColumn)
    if not numbers:
        raise UsageError(
            f"field {field!r}: expected a column of .npy members or files, of lists of numbers, or of numbers, got the "
            f"{found.kind}s of {name!r}"
        )
