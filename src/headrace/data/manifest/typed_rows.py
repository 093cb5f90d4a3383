"""Rows whose columns have types: files of parquet or Arrow, and tables in memory, as columns are built from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import types

from headrace.data.class_names import names_text
from headrace.data.manifest.arrow_columns import IntegerRange, converted, held_as, holds_bytes, is_bytes, needs_range
from headrace.data.manifest.column_names import chosen
from headrace.data.manifest.source import SourceRows
from headrace.errors import DatasetError, UsageError

_PIECE_ROWS = 1 << 14

DAMAGED = (pa.ArrowException, UnicodeDecodeError)
"""What pyarrow raises of a file's content; the latter of texts that become Python's, such as names of columns."""


class TypedPart(Protocol):
    """One file or table of rows."""

    name: str
    """As messages call it."""
    schema: pa.Schema
    rows: int

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns alone. Raises DatasetError, ReadError."""
        ...

    def damaged(self, error: Exception) -> DatasetError:
        """Return what to say of rows that pyarrow could not read."""
        ...


class TableRows:
    """The rows of a table in memory: a `TypedPart`."""

    def __init__(self, name: str, table: pa.Table, indices: npt.NDArray[np.int64] | None = None) -> None:
        """`indices`: which of its rows, in order; None: all."""
        self.name = name
        self.schema: pa.Schema = table.schema
        self.rows = table.num_rows if indices is None else len(indices)
        self._table = table
        self._indices = indices

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        table = self._table.select(list(columns))
        if self._indices is None:
            yield from table.to_batches(max_chunksize=_PIECE_ROWS)
            return
        for start in range(0, self.rows, _PIECE_ROWS):
            taken = table.take(self._indices[start : start + _PIECE_ROWS])
            yield from taken.combine_chunks().to_batches()

    def damaged(self, error: Exception) -> DatasetError:
        """Return what to say of values that pyarrow could not convert."""
        why = " ".join(str(error).split())
        return DatasetError(f"{self.name}: expected values of its schema, got some that cannot be read: {why}")


class TypedRows:
    """A `ManifestSource`: the rows of parts of one schema, one part after another; `columns` picks some of it.

    Columns of bytes are none of its own: `byte_columns` names them.
    """

    def __init__(self, parts: Sequence[TypedPart], *, columns: Sequence[str] | None) -> None:
        """Raises DatasetError where parts differ, and UsageError for a column that is not there."""
        self._parts = parts
        first = parts[0]
        self._names = chosen(first.name, first.schema.names, columns)
        for other in parts[1:]:
            _expect_alike(first, other, self._names if columns is not None else None)
        self.classes = _common_classes(parts, self._names)
        fields = [first.schema.field(name) for name in self._names]
        inside = [field for field in fields if holds_bytes(field.type) and not is_bytes(field.type)]
        if columns is not None and inside:
            raise UsageError(
                f"columns: expected columns of bytes, paths or values, got {inside[0].name!r} ({inside[0].type}), with "
                f"bytes inside lists, in {first.name}. Leave it out"
            )
        self.skipped = {"columns with bytes inside lists": len(inside)} if inside else {}
        taken = [field.name for field in fields if field not in inside]
        self.byte_columns = [(at, name) for at, name in enumerate(taken) if is_bytes(first.schema.field(name).type)]
        of_bytes = [name for _, name in self.byte_columns]
        self._fields = [self._field(name) for name in taken if name not in of_bytes]
        self._schema: pa.Schema | None = None

    @property
    def files(self) -> list[SourceRows]:
        return [SourceRows(part.rows, None) for part in self._parts]

    def schema(self) -> pa.Schema:
        if self._schema is None:
            ranges = {field.name: IntegerRange() for field in self._fields if needs_range(field.type)}
            for batch in self._batches(list(ranges)) if ranges else ():
                for name, seen in ranges.items():
                    seen.see(batch.column(name))
            self._schema = pa.schema([(f.name, held_as(f.type, ranges.get(f.name))) for f in self._fields])
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for part in self._parts if schema.names else ():
            for batch in part.batches(schema.names):
                try:
                    held = [_converted(batch.column(field.name), field.type) for field in schema]
                except DAMAGED as error:
                    raise part.damaged(error) from error
                yield pa.record_batch(held, schema=schema)

    def _batches(self, columns: list[str]) -> Iterator[pa.RecordBatch]:
        return (batch for part in self._parts for batch in part.batches(columns))

    def _field(self, name: str) -> pa.Field:
        """Of the first part where it is not null throughout."""
        found = (part.schema.field(name) for part in self._parts)
        return next((field for field in found if not types.is_null(field.type)), self._parts[0].schema.field(name))


def schema_classes(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the names of each ClassLabel that a schema of Hugging Face's datasets speaks of."""
    try:
        known = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    except (ValueError, RecursionError):
        return {}
    match known:
        case {"info": {"features": dict(features)}}:
            return feature_classes(features)
    return {}


def feature_classes(features: Any) -> dict[str, tuple[str, ...]]:
    """Return the names of each ClassLabel, or list of them, by feature; `features` as datasets writes them to JSON."""
    found = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        match feature:
            case (
                {"_type": "ClassLabel", "names": [*names]}
                | {"feature": {"_type": "ClassLabel", "names": [*names]}}
                | [{"_type": "ClassLabel", "names": [*names]}]  # a list, as old versions of datasets wrote it
            ):
                found[name] = tuple(map(str, names))
    return found


def _converted(array: pa.Array, type: pa.DataType) -> pa.Array:
    if types.is_null(array.type) and types.is_floating(type):
        return pa.nulls(len(array), type)
    return converted(array, type)


def _expect_alike(first: TypedPart, other: TypedPart, names: Sequence[str] | None) -> None:
    """Raises DatasetError for a column that is not there, or of another type, in one of two parts."""
    again = "Write them with one schema, or open each"
    mine, theirs = first.schema.names, other.schema.names
    for name in mine if names is None else names:
        if name not in theirs:
            raise DatasetError(
                f"{other.name}: expected the columns of {first.name}, got none called {name!r}. {again}, or take what "
                f"all have with columns="
            )
        expected, found = first.schema.field(name).type, other.schema.field(name).type
        if not _go_together(expected, found):
            raise DatasetError(
                f"{other.name}: expected {expected} in its column {name!r}, as in {first.name}, got {found}. {again}"
            )
    for name in theirs if names is None else ():
        if name not in mine:
            raise DatasetError(
                f"{other.name}: expected the columns of {first.name}, got another, {name!r}. {again}, or take what all "
                f"have with columns="
            )


def _common_classes(parts: Sequence[TypedPart], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the classes that columns of numbers hold, as Hugging Face's datasets keep them in a schema.

    Raises DatasetError where a number stands for different classes in two parts.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for part in parts:
        for name, classes in schema_classes(part.schema).items():
            where, known = found.setdefault(name, (part.name, classes))
            if name in names and classes != known:
                raise DatasetError(
                    f"{part.name}: expected the classes of {where} in its column {name!r} ({names_text(known)}), got "
                    f"{names_text(classes)}. Write them with one list of classes, or open each"
                )
    return {name: classes for name, (_, classes) in found.items()}


def _go_together(one: pa.DataType, other: pa.DataType) -> bool:
    """Return whether values of both types are held alike; a column that is null throughout goes with texts and floats,
    which have nulls."""
    if is_bytes(one) or is_bytes(other):
        return is_bytes(one) and is_bytes(other)
    if types.is_null(one) or types.is_null(other):
        typed = other if types.is_null(one) else one
        held = held_as(typed, None)
        return bool(types.is_string(held) or types.is_floating(held))
    return bool(held_as(one, None) == held_as(other, None))
