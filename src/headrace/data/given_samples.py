"""Samples that are given in memory: paths, pairs of a path and a label, columns, or dicts.

They become a dataset's columns, without an object a sample, so that all that holds of a dataset on disk holds of them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from headrace.data.class_names import names_text
from headrace.data.columns import Column, TextColumn, ValueColumn
from headrace.data.keys import NumberKeys
from headrace.data.memory_file import Data, GrowingBytes
from headrace.data.origin import ManifestRows, Origin
from headrace.data.sources.memory_samples import Values, columns_of, shown
from headrace.data.strings import StringColumn, Strings
from headrace.data.table import PathRoot, Table
from headrace.errors import EmptyDatasetError, UsageError

_KEY_NAMES = ("__key__", "key")


def table_of_paths(paths: Sequence[Any], *, root: PathRoot, source: str) -> Table:
    """Return a sample a path, whose file is `image`, and whose key is the path as it was given.

    Raises UsageError for what is no path.
    """
    names = StringColumn.from_list(_path_bytes(path, place) for place, path in enumerate(paths))
    return Table(source, names, {"image": root.column(names)}, {}, root=root)


def table_of_rows(rows: Sequence[Any], names: Sequence[str] | None, *, root: PathRoot) -> Table:
    """Return a sample a row, whose entries are columns of these names; None: rows are (path, label), as torchvision's
    `samples` are.

    Raises UsageError for rows of another length, and as `columns_of` does.
    """
    expected = "(path, label)" if names is None else f"({', '.join(names)})"
    count = 2 if names is None else len(names)
    for place, row in enumerate(rows):
        if not isinstance(row, tuple | list) or len(row) != count:
            hint = ". Name its entries with columns=" if names is None and isinstance(row, tuple | list) else ""
            raise UsageError(f"sample {place:,}: expected {expected}, got {shown(row)}{hint}")
    if names is not None:
        return table_of_columns({name: [row[at] for row in rows] for at, name in enumerate(names)}, None, root=root)
    source = f"{len(rows):,} paths and labels in memory"
    table = table_of_paths([path for path, _ in rows], root=root, source=source)
    labels, _ = columns_of({"label": [label for _, label in rows]})
    return replace(table, columns={**table.columns, **labels})


def table_of_columns(values: Mapping[str, Values], names: Sequence[str] | None, *, root: PathRoot) -> Table:
    """Return a sample a row of columns of one length; `names` picks some. Texts name files where a field takes them as
    paths.

    Raises as `columns_of` does.
    """
    columns, rows = columns_of(_picked(values, names))
    source = f"{len(columns):,} columns in memory" if len(columns) > 1 else "a column in memory"
    return Table(source, _keys(columns, rows), columns, {}, root=root, origin=_origin("the columns in memory", rows))


def table_of_records(
    records: Iterable[Any], names: Sequence[str] | None, *, root: PathRoot, length: int | None = None
) -> Table:
    """Return a sample for each dict that an iterable gives, which is read to its end. What a dict lacks is missing.

    `names` picks columns; `length`: how many it has to give. Raises UsageError where it gives more, fewer or anything
    but dicts, and as `columns_of` does.
    """
    grown: dict[str, _GrowingColumn] = {}
    count = 0
    for record in records if length is None else islice(records, length + 1):
        if not isinstance(record, Mapping):
            raise UsageError(_not_a_record(record, count))
        if count == length:
            raise UsageError(
                f"length: expected {length:,} samples from the iterable, got more. State how many it gives, or cut it "
                f"with itertools.islice"
            )
        for name in record:
            if name not in grown and (names is None or name in names):
                grown[name] = _GrowingColumn(name, count)
        for name, column in grown.items():
            column.add(record.get(name))
        count += 1
    if length is not None and count < length:
        raise UsageError(
            f"length: expected {length:,} samples from the iterable, got {count:,}. State how many it gives"
        )
    if not count:
        raise EmptyDatasetError("expected samples, got an iterable that gives none")
    table = table_of_columns({name: column.values() for name, column in grown.items()}, names, root=root)
    return replace(table, source=f"{count:,} samples in memory", origin=_origin("the samples in memory", count))


def _picked(values: Mapping[str, Values], names: Sequence[str] | None) -> Mapping[str, Values]:
    if names is None:
        return values
    for name in names:
        if name not in values:
            raise UsageError(f"columns: expected names of columns in memory ({names_text(list(values))}), got {name!r}")
    return {name: values[name] for name in names}


class _GrowingColumn:
    """A column of which values come one by one: bytes go to a file in memory at once, all else waits in a list."""

    def __init__(self, name: str, missing: int) -> None:
        """Begin with as many samples `missing` as came before the first that has it."""
        self._name = name
        self._items: list[Any] = [None] * missing
        self._bytes: GrowingBytes | None = None

    def add(self, value: Any) -> None:
        if self._bytes is None and isinstance(value, Data) and not any(item is not None for item in self._items):
            self._bytes = GrowingBytes()
            for _ in self._items:
                self._bytes.add(None)
        if self._bytes is None:
            self._items.append(value)
        elif value is None or isinstance(value, Data):
            self._bytes.add(value)
        else:
            raise UsageError(
                f"column {self._name!r}, sample {len(self._bytes):,}: expected bytes, as before, got {shown(value)}"
            )

    def values(self) -> Values:
        return self._items if self._bytes is None else self._bytes.column()


def _origin(name: str, rows: int) -> Origin:
    return Origin([ManifestRows(name, rows, None)])


def _path_bytes(path: object, place: int) -> bytes:
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise UsageError(f"sample {place:,}: expected a path, as the first is, got {shown(path)}")
    return os.fsencode(path)


def _keys(columns: Mapping[str, Column], rows: int) -> Strings:
    """Return the column of keys, else the first of texts, else row numbers, as a manifest does."""
    for name in _KEY_NAMES:
        column = columns.get(name)
        if isinstance(column, TextColumn):
            return column.strings
        if isinstance(column, ValueColumn):
            return NumberKeys(column.values)
    texts = next((column for column in columns.values() if isinstance(column, TextColumn)), None)
    return NumberKeys(range(rows)) if texts is None else texts.strings


def _not_a_record(record: object, place: int) -> str:
    got = f"sample {place:,}: expected a dict of columns, got {shown(record)}"
    if isinstance(record, str | os.PathLike):
        return f"{got}. An iterator gives paths in no order that is the same on each rank: pass sorted(…) of it"
    if isinstance(record, tuple | list):
        return (
            f"{got}. Give dicts such as {{'image': b'…', 'label': 3}}, or load a Dataset of your own with "
            f"headrace.ThreadDataLoader"
        )
    return f"{got}. Give dicts such as {{'image': b'…', 'label': 3}}"
