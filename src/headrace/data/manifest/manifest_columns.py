"""Rows and columns of a manifest: the protocol of readers, column names, and columns loaded from the cache."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec
import numpy as np

from headrace.data.byte_columns import digest_with_bytes
from headrace.data.class_names import names_text
from headrace.data.columns import Column, HeldColumn, ListColumn, TextColumn, ValueColumn, labelled
from headrace.data.storage.safetensors import (
    Arrays,
    InvalidFileError,
    checked_strings,
    read_outline,
    stored_numbers,
    stored_strings,
)
from headrace.data.storage.strings import NumberKeys, Strings
from headrace.data.table import ManifestOrigin, ManifestRows, PathRoot, SampleTable
from headrace.errors import DatasetError, EmptyDatasetError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_ROWS = 1 << 16
BATCH_BYTES = 4 << 20
MAX_COLUMNS = 1_000

_NUMBERS = (np.int64, np.float32, np.float64, np.bool_, np.int8, np.int16, np.int32, np.uint8, np.uint16, np.uint32,
            np.uint64, np.float16)  # fmt: skip
_EXACT_IN_FLOAT = 2**53
_KEY_NAMES = ("__key__", "key")


class SourceRows(NamedTuple):
    """Number of rows in one file."""

    rows: Annotated[int, msgspec.Meta(ge=0)]
    first_line: int | None
    """Line number, from 1, of the first row, if each row has one line."""


class ManifestSource(ABC):
    """Rows of a manifest in batches; each column has one type throughout.

    Types are string, int64, float32, float64, bool, and lists of string, int64, float32 and float64. A null is NaN in a
    float column and empty in a string column; other columns have no nulls.
    """

    byte_columns: Sequence[tuple[int, str]] = ()
    """Columns of bytes, which `schema` omits, each with its index among all columns."""
    classes: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """Class names by column of class numbers."""
    skipped: Mapping[str, int] = MappingProxyType({})
    """Number of columns that are skipped, by reason."""

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the type of each column, after reading all rows if needed. Raises DatasetError, UsageError."""

    @abstractmethod
    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows in that schema. Raises DatasetError, ReadError."""

    @property
    @abstractmethod
    def files(self) -> Sequence[SourceRows]:
        """Rows of each file, in order; known after `batches` has ended."""


def number_type(whole: pa.DataType, *, exact: bool, widest: int) -> pa.DataType | None:
    """Return the type for numbers up to `widest`: `whole` if exact, else float64; None if that changes numbers."""
    import pyarrow as pa

    if exact:
        return whole if widest < 2**63 else None
    return pa.float64() if widest <= _EXACT_IN_FLOAT else None


class _Outline(msgspec.Struct):
    """JSON outline of a manifest in its index."""

    rows: Annotated[int, msgspec.Meta(gt=0)]
    columns: list[tuple[str, str]]
    """Name and kind of each column except byte columns."""
    key: int | None
    """Index of the column that names the samples; None: row numbers do."""
    digest: str
    files: list[SourceRows]
    bytes: list[tuple[Annotated[int, msgspec.Meta(ge=0)], str]]
    """Columns of bytes, each with its index among all columns."""
    classes: dict[str, tuple[str, ...]]
    skipped: dict[str, int]


@dataclass(frozen=True)
class ManifestColumns:
    """Columns of a manifest's rows, except byte columns."""

    keys: Strings
    columns: dict[str, HeldColumn]
    digest: str
    files: list[SourceRows]
    byte_columns: list[tuple[int, str]]
    """Columns of bytes, each with its index among all columns."""
    skipped: dict[str, int]

    def labelled(self, classes: Mapping[str, tuple[str, ...]]) -> ManifestColumns:
        """Return these columns with class names for their numbers."""
        return replace(self, columns={name: labelled(each, classes.get(name)) for name, each in self.columns.items()})

    def joined(self, column_of: Callable[[str], Column]) -> dict[str, Column]:
        """Return all columns in order; `column_of` returns the column for each name in `byte_columns`."""
        named: list[tuple[str, Column]] = list(self.columns.items())
        for at, name in self.byte_columns:  # ascending
            named.insert(at, (name, column_of(name)))
        return dict(named)

    def table(
        self,
        source: str,
        names: Sequence[str],
        column_of: Callable[[str], Column],
        *,
        root: PathRoot | None,
        again: Callable[[], SampleTable] | None = None,
    ) -> SampleTable:
        """Return the rows as samples; `source` and `names` name all of them and each file in messages."""
        columns = self.joined(column_of)
        rows = zip(names, self.files, strict=True)
        origin = ManifestOrigin([ManifestRows(name, file.rows, file.first_line) for name, file in rows])
        digest = digest_with_bytes(self.digest, columns) if self.byte_columns else self.digest
        return SampleTable(source, self.keys, columns, self.skipped, root, origin, digest, again)


def load_manifest_columns(arrays: Arrays, outline: str) -> ManifestColumns:
    """Load the output of `build_columns` from untrusted input. Raises InvalidFileError.

    Time and memory do not depend on the number of rows.
    """
    known = read_outline(outline, _Outline)
    rows, names = known.rows, [name for name, _ in known.columns]
    if len(set(names)) < len(names) or sum(file.rows for file in known.files) != rows:
        raise InvalidFileError("the outline contradicts itself")
    if known.key is not None and not 0 <= known.key < len(names):
        raise InvalidFileError("the outline names a key that is no column")
    columns = {
        name: load_column(arrays, f"column.{number}", kind, rows) for number, (name, kind) in enumerate(known.columns)
    }
    keys = key_strings(None if known.key is None else columns[names[known.key]], rows)
    unlabelled = ManifestColumns(keys, columns, known.digest, known.files, known.bytes, known.skipped)
    return unlabelled.labelled(known.classes)


def load_column(arrays: Arrays, prefix: str, kind: str, rows: int, item_shape: Sequence[int] = ()) -> HeldColumn:
    """Load the arrays of one column of values from untrusted input. Raises InvalidFileError.

    `item_shape`: shape of each item of a list, such as [4] for boxes.
    """
    match kind:
        case "value":
            return ValueColumn(stored_numbers(arrays, f"{prefix}.values", _NUMBERS, rows))
        case "text":
            labels = None
            if f"{prefix}.labels" in arrays:
                classes = tuple(checked_strings(arrays, f"{prefix}.classes"))
                labels = ValueColumn(stored_numbers(arrays, f"{prefix}.labels", (np.int32,), rows), classes)
            return TextColumn(stored_strings(arrays, prefix, rows), labels)
        case "list":
            offsets = stored_numbers(arrays, f"{prefix}.offsets", (np.uint64,), rows + 1)
            of_numbers = f"{prefix}.items" in arrays
            items = (stored_numbers(arrays, f"{prefix}.items", _NUMBERS) if of_numbers
                     else stored_strings(arrays, f"{prefix}.items"))  # fmt: skip
            if offsets[0] != 0 or int(offsets[-1]) * math.prod(item_shape) != len(items):
                raise InvalidFileError(f"{prefix}.offsets do not divide its items")
            if item_shape:
                items = np.asarray(items).reshape(int(offsets[-1]), *item_shape)
            return ListColumn(offsets, items)
    raise InvalidFileError("a column is of another kind")


def key_strings(column: Column | None, rows: int) -> Strings:
    """Return the texts or numbers of the key column; without a column, the row numbers."""
    if isinstance(column, TextColumn):
        return column.strings
    return NumberKeys(column.values if isinstance(column, ValueColumn) else range(rows))


def find_key(kinds: Mapping[str, str], *, of_texts: bool) -> str | None:
    """Return the name of the key column, given column kinds by name: a column with a key name, else the first text.

    `of_texts`: True if other text columns qualify; next to images they are captions rather than names.
    """
    called = (name for name in _KEY_NAMES if kinds.get(name) in ("text", "value"))
    texts = (name for name, kind in kinds.items() if kind == "text" and of_texts)
    return next(called, None) or next(texts, None)


def check_names(columns: Sequence[str]) -> list[str]:
    """Return `columns=` as a list. Raises UsageError."""
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns: expected a list of names, such as ['image', 'label'], got {columns!r}")
    names = list(columns)
    if not names or "" in names:
        raise UsageError(f"columns: expected names, got {names!r}")
    if len(set(names)) < len(names):
        raise UsageError(f"columns: expected names that differ, got {names!r}")
    return names


def distinct_names(manifest: str, names: Sequence[str]) -> list[str]:
    """Return names as a list. Raises DatasetError for equal names, too many, or none."""
    if not names:
        raise EmptyDatasetError(f"{manifest}: expected at least one column, got none. Check the file")
    if len(names) > MAX_COLUMNS:
        raise DatasetError(f"{manifest}: expected at most {MAX_COLUMNS:,} columns, got {len(names):,}")
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DatasetError(
                f"{manifest}: expected column names that differ, got {name!r} twice. Rename one in the manifest"
            )
        seen.add(name)
    return list(names)


def choose_names(manifest: str, names: Sequence[str], columns: Sequence[str] | None) -> list[str]:
    """Return the columns of a manifest that `columns=` selects, or all. Raises UsageError for an unknown column."""
    if columns is None:
        return distinct_names(manifest, names)
    for name in columns:
        if name not in names:
            raise UsageError(f"columns: expected names of columns of {manifest} ({names_text(names)}), got {name!r}")
    return distinct_names(manifest, columns)


def expect_columns(
    first: str,
    mine: Sequence[str],
    other: str,
    theirs: Sequence[str],
    *,
    missing: str,
    extra: str,
    only: Sequence[str] | None = None,
) -> None:
    """Raise DatasetError if the file `other` lacks a column of the file `first`, or has an extra one.

    `missing` and `extra` are advice for these cases; `only`: the columns to compare, None: all.
    """
    for name in mine if only is None else only:
        if name not in theirs:
            raise DatasetError(
                f"{other}: expected the columns of {first}, got none called {name!r}. {missing}, or take what all have "
                f"with columns="
            )
    for name in theirs if only is None else ():
        if name not in mine:
            raise DatasetError(
                f"{other}: expected the columns of {first}, got another, {name!r}. {extra}, or take what all have with "
                f"columns="
            )
