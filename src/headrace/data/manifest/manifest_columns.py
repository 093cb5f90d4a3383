"""A manifest's rows and columns: the protocol of their readers, column names, and columns loaded from the cache."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from headrace.data.columns import HeldColumn, ListColumn, TextColumn, ValueColumn
from headrace.data.storage import safetensors
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.storage.strings import NumberKeys, Strings
from headrace.errors import DatasetError, EmptyDatasetError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa


# -- from data/manifest/source.py: What a manifest is to whoever builds columns from it, whatever its format.


BATCH_ROWS = 1 << 16
BATCH_BYTES = 4 << 20
MAX_COLUMNS = 1_000

T = TypeVar("T")


class SourceRows(NamedTuple):
    """How many rows one file has."""

    rows: int
    first_line: int | None
    """The line, from 1, of the first row, if row after row takes one line."""


class ManifestSource(Protocol):
    """Rows of a manifest in batches, each column of one type from the first row to the last.

    Types are string, int64, float32, float64, bool, and lists of string, int64, float32 and float64. A null is NaN in
    a column of floats and an empty text in one of strings; other columns have none.
    """

    def schema(self) -> pa.Schema:
        """Looks through all of the manifest where the format does not say. Raises DatasetError, UsageError."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Of that schema, from the first row on. Raises DatasetError, ReadError."""
        ...

    @property
    def files(self) -> Sequence[SourceRows]:
        """Of each file that the rows come from, in order; known once `batches` has ended."""
        ...

    @property
    def byte_columns(self) -> Sequence[tuple[int, str]]:
        """Columns of bytes, which are none of `schema`, each with its place among all columns."""
        ...

    @property
    def classes(self) -> Mapping[str, tuple[str, ...]]:
        """Names of classes that columns of numbers hold, by column."""
        ...

    @property
    def skipped(self) -> Mapping[str, int]:
        """What is taken for no column, by reason."""
        ...


class TextOnly:
    """The part of a `ManifestSource` that a text has nothing of."""

    byte_columns: Sequence[tuple[int, str]] = ()
    classes: Mapping[str, tuple[str, ...]] = {}  # read alone
    skipped: Mapping[str, int] = {}


def batched(rows: Iterable[tuple[T, int]]) -> Iterator[list[T]]:
    """Rows, each given with its bytes in the file, so many at a time as memory should hold."""
    batch: list[T] = []
    total = 0
    for row, size in rows:
        batch.append(row)
        total += size
        if len(batch) == BATCH_ROWS or total >= BATCH_BYTES:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


# -- from data/manifest/kept.py: What is kept of a manifest, as the columns of a table again: mapped from a file, not
# loaded.


_NUMBERS = (np.int64, np.float32, np.float64, np.bool_)


@dataclass(frozen=True)
class ManifestColumns:
    """The samples of a manifest."""

    keys: Strings
    columns: dict[str, HeldColumn]
    digest: str
    files: list[SourceRows]
    byte_columns: list[tuple[int, str]]
    """Columns that are none of `columns`, each with its place among all."""
    skipped: dict[str, int]


def load_manifest_columns(arrays: Arrays, outline: str) -> ManifestColumns:
    """The inverse of `building.build_columns`, from untrusted input. Raises InvalidFileError.

    Neither time nor memory depends on the number of rows.
    """
    rows, entries, key, digest, known = _read_outline(outline)
    files, byte_columns, classes, skipped = _read_sources(known, rows)
    columns = {name: _column(arrays, f"column.{number}", kind, rows) for number, (name, kind) in enumerate(entries)}
    keys = _keys(None if key is None else list(columns.values())[key], rows)
    columns = {name: _labelled(column, classes.get(name)) for name, column in columns.items()}
    return ManifestColumns(keys, columns, digest, files, byte_columns, skipped)


def _read_outline(text: str) -> tuple[int, list[tuple[str, str]], int | None, str, dict[str, Any]]:
    try:
        outline = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidFileError("the outline is not JSON") from error
    match outline:
        case {
            "rows": int(rows),
            "columns": list(columns),
            "key": int() | None as key,
            "digest": str(digest),
        }:
            entries = [(name, kind) for name, kind in map(_entry, columns)]
            differ = len(dict(entries)) == len(entries)
            if rows > 0 and differ and (key is None or 0 <= key < len(entries)):
                return rows, entries, key, digest, outline
    raise InvalidFileError("the outline has another form")


def _read_sources(
    outline: dict[str, Any], rows: int
) -> tuple[list[SourceRows], list[tuple[int, str]], dict[str, tuple[str, ...]], dict[str, int]]:
    match outline:
        case {"files": list(files), "bytes": list(of_bytes), "classes": dict(classes), "skipped": dict(skipped)}:
            found = [_source_rows(file) for file in files]
            if sum(file.rows for file in found) == rows and all(isinstance(count, int) for count in skipped.values()):
                named = {name: tuple(map(str, names)) for name, names in classes.items()}
                return found, [_place(entry) for entry in of_bytes], named, skipped
    raise InvalidFileError("the outline has another form")


def _source_rows(value: object) -> SourceRows:
    match value:
        case [int(rows), int() | None as first_line] if rows >= 0:
            return SourceRows(rows, first_line)
    raise InvalidFileError("the outline has another form")


def _place(value: object) -> tuple[int, str]:
    match value:
        case [int(at), str(name)] if at >= 0:
            return at, name
    raise InvalidFileError("the outline has another form")


def _labelled(column: HeldColumn, classes: tuple[str, ...] | None) -> HeldColumn:
    if classes is None or not isinstance(column, ValueColumn | ListColumn):
        return column
    return replace(column, classes=classes)


def _entry(value: object) -> tuple[str, str]:
    match value:
        case [str(name), str(kind)]:
            return name, kind
    raise InvalidFileError("the outline has another form")


def _column(arrays: Arrays, prefix: str, kind: str, rows: int) -> HeldColumn:
    match kind:
        case "value":
            return ValueColumn(safetensors.many_numbers(arrays, f"{prefix}.values", _NUMBERS, rows))
        case "text":
            return TextColumn(safetensors.many_strings(arrays, prefix, rows), _labels(arrays, prefix, rows))
        case "list":
            return _list(arrays, prefix, rows)
    raise InvalidFileError("a column is of another kind")


def _labels(arrays: Arrays, prefix: str, rows: int) -> ValueColumn | None:
    if f"{prefix}.labels" not in arrays:
        return None
    classes = tuple(safetensors.checked_strings(arrays, f"{prefix}.classes"))
    return ValueColumn(safetensors.many_numbers(arrays, f"{prefix}.labels", (np.int32,), rows), classes)


def _list(arrays: Arrays, prefix: str, rows: int) -> ListColumn:
    offsets = safetensors.many_numbers(arrays, f"{prefix}.offsets", (np.uint64,), rows + 1)
    if f"{prefix}.items" in arrays:
        numbers = safetensors.many_numbers(arrays, f"{prefix}.items", _NUMBERS)
        column = ListColumn(offsets, numbers)
    else:
        column = ListColumn(offsets, safetensors.many_strings(arrays, f"{prefix}.items"))
    if offsets[0] != 0 or offsets[-1] != len(column.items):
        raise InvalidFileError(f"{prefix}.offsets do not divide its items")
    return column


def _keys(column: HeldColumn | None, rows: int) -> Strings:
    if isinstance(column, TextColumn):
        return column.strings
    return NumberKeys(column.values if isinstance(column, ValueColumn) else range(rows))


# -- from data/manifest/column_names.py: The names of a manifest's columns: its header's, or those that the caller
# gives with `columns=`.


_SHOWN = 10


def check_names(columns: Sequence[str]) -> list[str]:
    """`columns=` as a list. Raises UsageError."""
    if isinstance(columns, str) or not all(isinstance(name, str) for name in columns):
        raise UsageError(f"columns: expected a list of names, such as ['image', 'label'], got {columns!r}")
    names = list(columns)
    if not names or "" in names:
        raise UsageError(f"columns: expected names, got {names!r}")
    if len(set(names)) < len(names):
        raise UsageError(f"columns: expected names that differ, got {names!r}")
    return names


def is_header(first: Sequence[str], columns: Sequence[str]) -> bool:
    """Whether a first row holds the names that the caller knows the columns by."""
    return set(columns) <= set(first)


def header_names(manifest: str, first: Sequence[str]) -> list[str]:
    """The names in a header; a column without one, such as the index that pandas writes, is named by its number."""
    return distinct_names(manifest, [name or f"column {number}" for number, name in enumerate(first, 1)])


def distinct_names(manifest: str, names: Sequence[str]) -> list[str]:
    """Names as a list. Raises DatasetError where there are two of one name, too many, or none."""
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
    """Those of a manifest's columns that `columns=` picks, or all. Raises UsageError for one that is not there."""
    if columns is None:
        return distinct_names(manifest, names)
    for name in columns:
        if name not in names:
            some = ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")
            raise UsageError(f"columns: expected names of columns of {manifest} ({some}), got {name!r}")
    return distinct_names(manifest, columns)
