"""What is kept of a manifest, as the columns of a table again: mapped from a file, not loaded."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headrace.data import checked
from headrace.data.columns import HeldColumn, ListColumn, TextColumn, ValueColumn
from headrace.data.keys import NumberKeys
from headrace.data.manifest.source import SourceRows
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.strings import Strings

_NUMBERS = (np.int64, np.float32, np.float64, np.bool_)


@dataclass(frozen=True)
class Kept:
    """The samples of a manifest."""

    keys: Strings
    columns: dict[str, HeldColumn]
    digest: str
    files: list[SourceRows]
    byte_columns: list[tuple[int, str]]
    """Columns that are none of `columns`, each with its place among all."""
    skipped: dict[str, int]


def load_kept(arrays: Arrays, outline: str) -> Kept:
    """The inverse of `building.build_columns`, from untrusted input. Raises InvalidFileError.

    Neither time nor memory depends on the number of rows.
    """
    rows, entries, key, digest, known = _read_outline(outline)
    files, byte_columns, classes, skipped = _read_sources(known, rows)
    columns = {name: _column(arrays, f"column.{number}", kind, rows) for number, (name, kind) in enumerate(entries)}
    keys = _keys(None if key is None else list(columns.values())[key], rows)
    columns = {name: _labelled(column, classes.get(name)) for name, column in columns.items()}
    return Kept(keys, columns, digest, files, byte_columns, skipped)


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
            return ValueColumn(checked.many_numbers(arrays, f"{prefix}.values", _NUMBERS, rows))
        case "text":
            return TextColumn(checked.many_strings(arrays, prefix, rows), _labels(arrays, prefix, rows))
        case "list":
            return _list(arrays, prefix, rows)
    raise InvalidFileError("a column is of another kind")


def _labels(arrays: Arrays, prefix: str, rows: int) -> ValueColumn | None:
    if f"{prefix}.labels" not in arrays:
        return None
    classes = tuple(checked.strings(arrays, f"{prefix}.classes"))
    return ValueColumn(checked.many_numbers(arrays, f"{prefix}.labels", (np.int32,), rows), classes)


def _list(arrays: Arrays, prefix: str, rows: int) -> ListColumn:
    offsets = checked.many_numbers(arrays, f"{prefix}.offsets", (np.uint64,), rows + 1)
    if f"{prefix}.items" in arrays:
        numbers = checked.many_numbers(arrays, f"{prefix}.items", _NUMBERS)
        column = ListColumn(offsets, numbers)
    else:
        column = ListColumn(offsets, checked.many_strings(arrays, f"{prefix}.items"))
    if offsets[0] != 0 or offsets[-1] != len(column.items):
        raise InvalidFileError(f"{prefix}.offsets do not divide its items")
    return column


def _keys(column: HeldColumn | None, rows: int) -> Strings:
    if isinstance(column, TextColumn):
        return column.strings
    return NumberKeys(column.values if isinstance(column, ValueColumn) else range(rows))
