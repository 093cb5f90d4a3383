"""Class names: number labels by class, and select the samples of some classes."""

from __future__ import annotations

import difflib
import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.data.columns import (
    ByteColumn,
    BytesListColumn,
    Column,
    HeldColumn,
    KeyColumn,
    ListColumn,
    TextColumn,
    ValueColumn,
)
from headrace.data.storage.strings import Ints, Strings
from headrace.data.table import SampleTable
from headrace.errors import EmptyDatasetError, UsageError

Classes: TypeAlias = bool | Sequence[str]
"""True if folder names are classes, or the classes to select."""

LABEL = "label"
_SHOWN = 10


def renumbering(found: Sequence[str], wanted: Sequence[str], *, where: str) -> Ints:
    """Return the new number of each class in `found`: its index in `wanted`, or -1. The last entry maps label -1.

    If all found classes are wanted, `wanted` may name more classes: a validation set need not have all of them. Raises
    UsageError for any other wanted class that was not found.
    """
    if set(found) <= set(wanted):
        place_in = {name: place for place, name in enumerate(wanted)}
        return np.array([*(place_in[name] for name in found), -1], np.int64)
    place_of = {name: place for place, name in enumerate(found)}
    for name in wanted:
        if name not in place_of:
            close = difflib.get_close_matches(name, found, 1)
            hint = f". Did you mean {close[0]!r}?" if close else ""
            raise UsageError(
                f"classes: expected names among the {len(found):,} classes of {where} ({names_text(found)}), "
                f"got {name!r}{hint}"
            )
    number_of = np.full(len(found) + 1, -1, np.int64)
    number_of[[place_of[name] for name in wanted]] = np.arange(len(wanted))
    return number_of


def names_text(names: Sequence[str]) -> str:
    """Return the first names of many, for a message."""
    return ", ".join(map(repr, names[:_SHOWN])) + (", …" if len(names) > _SHOWN else "")


def keep_classes(table: SampleTable, wanted: Sequence[str]) -> tuple[SampleTable, Ints | None]:
    """Return the table with labels numbered in the order of `wanted`, and its samples of these classes; None: all.

    Text labels and labels with class names keep their meaning. Other whole numbers get the names in `wanted`.

    Raises UsageError for a table without such labels or a class without samples, EmptyDatasetError if none remain.
    """
    label = table.columns.get(LABEL)
    if isinstance(label, TextColumn) and label.labels is not None and label.classes is not None:
        labels = renumbering(label.classes, wanted, where=table.source)[label.labels.values]
        column: TextColumn | ValueColumn = replace(label, labels=ValueColumn(labels, tuple(wanted)))
    elif isinstance(label, ValueColumn) and label.classes is not None:
        labels = renumbering(label.classes, wanted, where=table.source)[label.values.astype(np.int64)]
        column = ValueColumn(labels, tuple(wanted))
    elif isinstance(label, ValueColumn) and label.values.dtype.kind in "iu":
        labels = label.values.astype(np.int64)
        least, most = int(labels.min()), int(labels.max())
        if least < -1 or most >= len(wanted):
            raise UsageError(
                f"classes: expected a name for each label of {table.source}, which go from {least} to {most}, got "
                f"{len(wanted):,} names ({names_text(wanted)})"
            )
        column = ValueColumn(labels, tuple(wanted))
    else:
        got = "none of that name" if label is None else f"one of {label.kind}s"
        raise UsageError(
            f"classes: expected a column {LABEL!r} of whole numbers or of names of classes in {table.source}, got {got}"
        )
    kept = np.flatnonzero(labels >= 0)
    if not len(kept):
        raise EmptyDatasetError(f"{table.source}: expected samples of the classes {names_text(wanted)}, got none")
    digest = table.known_digest
    if digest is not None:  # it covers the old labels, which determine the new ones
        digest = hashlib.blake2b(json.dumps([digest, list(wanted)]).encode(), digest_size=16).hexdigest()
    again = None if table.again is None else partial(_open_again, table.again, tuple(wanted))
    columns = {**table.columns, LABEL: column}
    chosen = replace(table, columns=columns, known_digest=digest, again=again)
    return chosen, None if len(kept) == len(labels) else kept


def _open_again(again: Callable[[], SampleTable], wanted: Sequence[str]) -> SampleTable:
    return keep_classes(again(), wanted)[0]


def label_column(column: HeldColumn | BytesListColumn, place: str, *, advice: str = "") -> ValueColumn:
    """Return a column's numbers, or the class indices of its texts.

    Raises UsageError for other columns; `place` starts the message and `advice` ends it.
    """
    if isinstance(column, TextColumn) and column.labels is not None:
        return column.labels
    if not isinstance(column, ValueColumn):
        raise UsageError(
            f"{place}: expected one number a sample, or names of classes, got a {column.kind} column{advice}"
        )
    return column


def rows_of_values(column: Column, ids: Ints, wanted: Any, name: str) -> npt.NDArray[np.bool_]:
    """Return a mask over the samples `ids`: True if the value, or its class name, is in `wanted`.

    Raises UsageError for a column of bytes or lists, for values of another kind, and for a text that no sample has.
    """
    if isinstance(column, ByteColumn | BytesListColumn | ListColumn):
        raise UsageError(
            f"filter: expected a column of numbers or texts, got {name!r}, one of {column.kind}; "
            f"pass a function and columns=[{name!r}]"
        )
    values = [wanted] if isinstance(wanted, str) or not hasattr(wanted, "__iter__") else list(wanted)
    numbers = column.labels if isinstance(column, TextColumn) else column
    if values and all(isinstance(value, str) for value in values):
        classes = column.classes
        if isinstance(column, TextColumn | KeyColumn) and (classes is None or "" in values):  # "" is not a class
            return np.fromiter((text in values for text in column.take(ids)), bool, len(ids))
        unknown = [value for value in values if value not in (classes or ())]
        if unknown and classes is not None:
            raise UsageError(f"filter: expected {name} to be among {names_text(classes)}, got {unknown[0]!r}")
        values = [value if classes is None else classes.index(value) for value in values]
    if not isinstance(numbers, ValueColumn) or not all(isinstance(value, int | float | np.number) for value in values):
        kind = "a number" if isinstance(column, ValueColumn) else "a text"
        raise UsageError(
            f"filter: expected {name} to be {kind}, as its column holds, or a list of these, got {wanted!r}"
        )
    return np.isin(numbers.take(ids), values)


def named_classes(column: Column, classes: tuple[str, ...], name: str) -> ValueColumn:
    """Return a column of whole numbers, or of texts among `classes`, as class numbers.

    Raises UsageError for any other value, and names its row.
    """
    if isinstance(column, TextColumn):
        number_of = {each: number for number, each in enumerate(classes)}
        numbers = [number_of.get(text, -1) for text in column.strings]
        if -1 in numbers:
            row = numbers.index(-1)
            raise UsageError(
                f"column {name!r}, row {row:,}: expected one of {names_text(classes)}, got {column.strings[row]!r}"
            )
        return ValueColumn(np.array(numbers, np.int64), classes)
    if not isinstance(column, ValueColumn) or column.values.dtype.kind not in "iu":
        raise UsageError(f"column {name!r}: expected whole numbers or names of classes, got a {column.kind} column")
    values = column.values.astype(np.int64)
    odd = np.flatnonzero((values < 0) | (values >= len(classes)))
    if len(odd):
        raise UsageError(
            f"column {name!r}, row {odd[0]:,}: expected a number from 0 to {len(classes) - 1}, of "
            f"{names_text(classes)}, got {values[odd[0]]}"
        )
    return ValueColumn(values, classes)


def parse_labels(members: Sequence[bytes], keys: Sequence[str] | Strings, name: str) -> Ints:
    """Return the whole number in each text member (`.cls`). Raises UsageError for the first member without one."""
    try:
        return np.array([int(value) for value in members], np.int64)
    except (ValueError, OverflowError):
        row = next(row for row, value in enumerate(members) if not _is_int64(value))
        raise UsageError(
            f"field {name!r}, sample {keys[row]!r}: expected a whole number for a label, got {members[row][:40]!r}; "
            "use Raw() and parse it in map="
        ) from None


def _is_int64(value: bytes) -> bool:
    try:
        return -(1 << 63) <= int(value) < 1 << 63
    except ValueError:
        return False
