"""Rows of parquet, Arrow or in-memory tables, converted to the few types that columns have."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

from headrace.data.class_names import names_text
from headrace.data.manifest.manifest_columns import (
    ManifestSource,
    SourceRows,
    choose_names,
    expect_columns,
    number_type,
)
from headrace.errors import DatasetError, UsageError


class IntegerRange:
    """Range of a column of integers or booleans, which decides its type: nulls and largest value."""

    def __init__(self) -> None:
        self._missing = False
        self._widest = 0

    def see(self, array: pa.Array) -> None:
        array = _plain(array)
        if is_list(array.type):
            array = _plain(pc.list_flatten(array))
        self._missing |= array.null_count > 0
        if types.is_integer(array.type):
            bounds = pc.min_max(array).as_py()
            self._widest = max([self._widest, *(abs(bound) for bound in bounds.values() if bound is not None)])

    def type(self, whole: pa.DataType) -> pa.DataType | None:
        """Return `whole` if there are no nulls, floats if they are exact, else None."""
        return number_type(whole, exact=not self._missing, widest=self._widest)


def needs_range(type: pa.DataType) -> bool:
    """Return True if `held_as` needs the range of the column."""
    plain = _plain_type(type)
    held = _number_type(_plain_type(plain.value_type) if is_list(plain) else plain)
    return held is not None and not types.is_floating(held)


def holds_bytes(type: pa.DataType) -> bool:
    """Return True for a binary type, or a nested type that contains one."""
    plain = _plain_type(type)
    if types.is_nested(plain):
        return any(holds_bytes(plain.field(number).type) for number in range(plain.num_fields))
    return _is_binary(plain) or bool(types.is_fixed_size_binary(plain))


def is_bytes(type: pa.DataType) -> bool:
    """Return True for bytes, Hugging Face images (structs with `bytes`, and optionally `path`), or lists of these."""
    plain = _plain_type(type)
    if is_list(plain):
        plain = _plain_type(plain.value_type)
    if types.is_struct(plain):
        at = plain.get_field_index("bytes")
        return at >= 0 and not types.is_struct(plain.field(at).type) and is_bytes(plain.field(at).type)
    return _is_binary(plain)


def _is_binary(type: pa.DataType) -> bool:
    return bool(types.is_binary(type) or types.is_large_binary(type) or types.is_binary_view(type))


def items_and_counts(array: pa.Array) -> tuple[pa.Array, npt.NDArray[np.int64] | None]:
    """Return the items of all lists of an array, and each list's length; without lists, the array and None."""
    array = _plain(array)
    if not is_list(array.type):
        return array, None
    counts = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return array.flatten(), counts


def bytes_and_paths(array: pa.Array) -> tuple[pa.Array, pa.StringArray | None]:
    """Return the bytes of a column that `is_bytes`, without lists, and paths for values without bytes.

    Paths are None if no value has one.
    """
    array = _plain(array)
    if not types.is_struct(array.type):
        return _with_offsets(array), None
    # Flattening makes a child null if its parent is null.
    children = array.flatten()
    values = _plain(children[array.type.get_field_index("bytes")])
    at = array.type.get_field_index("path")
    if not values.null_count or at < 0 or not _is_text(array.type.field(at).type):
        return _with_offsets(values), None
    paths = pc.if_else(values.is_null(), pc.fill_null(children[at].cast(pa.string()), ""), "")
    return _with_offsets(values), paths if pc.any(pc.not_equal(paths, "")).as_py() else None


def _with_offsets(array: pa.Array) -> pa.Array:
    return array.cast(pa.large_binary()) if types.is_binary_view(array.type) else array


def held_as(type: pa.DataType, seen: IntegerRange | None) -> pa.DataType:
    """Return the type (see `ManifestSource`) to convert a column of `type` to: text if no other fits."""
    plain = _plain_type(type)
    item = _plain_type(plain.value_type) if is_list(plain) else plain
    number = _number_type(item)
    held = number if number is None or seen is None else seen.type(number)
    if not is_list(plain):
        return pa.string() if held is None else held
    if held is not None and not types.is_boolean(held):
        return pa.list_(held)
    return pa.list_(pa.string()) if _is_text(item) else pa.string()


def convert_array(array: pa.Array, type: pa.DataType) -> pa.Array:
    """Convert an array to a type from `held_as`."""
    array = _plain(array)
    if types.is_null(array.type) and types.is_floating(type):
        return pa.nulls(len(array), type)
    if types.is_list(type):
        if types.is_fixed_size_list(array.type):  # nulls in a fixed-size list have a length, too
            array = array.cast(pa.list_(array.type.value_type))
        if array.null_count:
            array = pc.fill_null(array, pa.scalar([], array.type))
        return array.cast(type)
    if not types.is_string(type) or _is_text(array.type) or types.is_temporal(array.type) or types.is_null(array.type):
        return array.cast(type)
    values = ("" if value is None else value for value in array.to_pylist())
    nested = (dict, list)
    return pa.array(
        [json.dumps(v, ensure_ascii=False, default=str) if isinstance(v, nested) else str(v) for v in values], type
    )


def _plain(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    return _plain(array.dictionary_decode()) if types.is_dictionary(array.type) else array


def _plain_type(type: pa.DataType) -> pa.DataType:
    if isinstance(type, pa.BaseExtensionType):
        return _plain_type(type.storage_type)
    return _plain_type(type.value_type) if types.is_dictionary(type) else type


def _number_type(type: pa.DataType) -> pa.DataType | None:
    if types.is_integer(type):
        return pa.int64()
    if types.is_float16(type) or types.is_float32(type):
        return pa.float32()
    if types.is_float64(type) or types.is_decimal(type):
        return pa.float64()
    return pa.bool_() if types.is_boolean(type) else None


def is_list(type: pa.DataType) -> bool:
    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _is_text(type: pa.DataType) -> bool:
    return bool(types.is_string(type) or types.is_large_string(type) or types.is_string_view(type))


_PIECE_ROWS = 1 << 14

DAMAGED = (pa.ArrowException, UnicodeDecodeError)
"""Errors of pyarrow about a file's content; UnicodeDecodeError about texts, such as column names."""


class TypedPart(ABC):
    """File or table of rows."""

    name: str
    """Name in messages."""
    schema: pa.Schema
    rows: int
    expected: str
    """First half of the message for rows that pyarrow cannot read: "expected …, got …"."""
    advice = ""

    @abstractmethod
    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows in order, with these columns only. Raises DatasetError, ReadError."""

    def damaged(self, error: Exception) -> DatasetError:
        """Return the error for rows that pyarrow cannot read."""
        return DatasetError(f"{self.name}: {self.expected}: {' '.join(str(error).split())}{self.advice}")


class TableRows(TypedPart):
    """Rows of an in-memory table, with the interface of a file."""

    expected = "expected values of its schema, got some that cannot be read"

    def __init__(self, name: str, table: pa.Table, indices: npt.NDArray[np.int64] | None = None) -> None:
        """Take the rows `indices` of a table, in order; None: all."""
        self.name = name
        self.schema = table.schema
        self.rows = table.num_rows if indices is None else len(indices)
        self._table = table
        self._indices = indices

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        table = self._table.select(list(columns))
        if self._indices is None:
            yield from table.to_batches(max_chunksize=_PIECE_ROWS)
            return
        for place, field in enumerate(table.schema):  # pyarrow cannot take rows of view types
            if types.is_string_view(field.type):
                table = table.set_column(place, field.name, table.column(place).cast(pa.large_string()))
        for start in range(0, self.rows, _PIECE_ROWS):
            taken = table.take(self._indices[start : start + _PIECE_ROWS])
            yield from taken.combine_chunks().to_batches()


class TypedRows(ManifestSource):
    """Concatenated rows of parts with one schema; `columns` selects from it.

    `byte_columns` lists columns of bytes, which batches omit.
    """

    def __init__(self, parts: Sequence[TypedPart], *, columns: Sequence[str] | None) -> None:
        """Raise DatasetError if parts differ, and UsageError for an unknown column."""
        self._parts = parts
        first = parts[0]
        self._names = choose_names(first.name, first.schema.names, columns)
        for other in parts[1:]:
            _expect_alike(first, other, self._names if columns is not None else None)
        self.classes = _common_classes(parts, self._names)
        fields = [first.schema.field(name) for name in self._names]
        inside = [field for field in fields if holds_bytes(field.type) and not is_bytes(field.type)]
        if columns is not None and inside:
            raise UsageError(
                f"columns: expected columns of bytes, paths or values, got {inside[0].name!r} ({inside[0].type}), with "
                f"bytes inside structs, in {first.name}. Leave it out"
            )
        self.skipped = {"columns with bytes inside structs": len(inside)} if inside else {}
        taken = [field.name for field in fields if field not in inside]
        self.byte_columns = [(at, name) for at, name in enumerate(taken) if is_bytes(first.schema.field(name).type)]
        of_bytes = [name for _, name in self.byte_columns]
        self._fields = []
        for name in taken:
            if name not in of_bytes:  # from the first part with values in the column
                found = [part.schema.field(name) for part in parts]
                self._fields.append(next((field for field in found if not types.is_null(field.type)), found[0]))
        self._schema: pa.Schema | None = None

    @property
    def files(self) -> list[SourceRows]:
        return [SourceRows(part.rows, None) for part in self._parts]

    def schema(self) -> pa.Schema:
        if self._schema is None:
            ranges = {field.name: IntegerRange() for field in self._fields if needs_range(field.type)}
            for part in self._parts if ranges else ():
                for batch in part.batches(list(ranges)):
                    for name, seen in ranges.items():
                        seen.see(batch.column(name))
            self._schema = pa.schema([(f.name, held_as(f.type, ranges.get(f.name))) for f in self._fields])
        return self._schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        schema = self.schema()
        for part in self._parts if schema.names else ():
            for batch in part.batches(schema.names):
                try:
                    held = [convert_array(batch.column(field.name), field.type) for field in schema]
                except DAMAGED as error:
                    raise part.damaged(error) from error
                yield pa.record_batch(held, schema=schema)


def schema_classes(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return the class names of each ClassLabel in a schema written by Hugging Face datasets."""
    try:
        known = json.loads((schema.metadata or {}).get(b"huggingface", b"{}"))
    except (ValueError, RecursionError):
        return {}
    match known:
        case {"info": {"features": dict(features)}}:
            return feature_classes(features)
    return {}


def feature_classes(features: Any) -> dict[str, tuple[str, ...]]:
    """Return the class names of each ClassLabel, or list of them, by feature; `features` is the JSON of datasets."""
    found = {}
    for name, feature in features.items() if isinstance(features, dict) else ():
        match feature:
            case (
                {"_type": "ClassLabel", "names": [*names]}
                | {"feature": {"_type": "ClassLabel", "names": [*names]}}
                | [{"_type": "ClassLabel", "names": [*names]}]  # a list, as written by old versions of datasets
            ):
                found[name] = tuple(map(str, names))
    return found


def _expect_alike(first: TypedPart, other: TypedPart, names: Sequence[str] | None) -> None:
    """Raise DatasetError if a column is missing, or has another type, in one of two parts."""
    again = "Write them with one schema, or open each"
    mine, theirs = first.schema, other.schema
    expect_columns(first.name, mine.names, other.name, theirs.names, only=names, missing=again, extra=again)
    for name in mine.names if names is None else names:
        expected, found = mine.field(name).type, theirs.field(name).type
        if not _go_together(expected, found):
            raise DatasetError(
                f"{other.name}: expected {expected} in its column {name!r}, as in {first.name}, got {found}. {again}"
            )


def _common_classes(parts: Sequence[TypedPart], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the classes of number columns, as Hugging Face datasets store them in a schema.

    Raises DatasetError if a number means different classes in two parts.
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
    """Return True if both types convert to the same type; null columns match texts and floats, which allow nulls."""
    if is_bytes(one) or is_bytes(other):
        return is_bytes(one) and is_bytes(other) and is_list(_plain_type(one)) == is_list(_plain_type(other))
    if types.is_null(one) or types.is_null(other):
        typed = other if types.is_null(one) else one
        held = held_as(typed, None)
        return bool(types.is_string(held) or types.is_floating(held))
    return bool(held_as(one, None) == held_as(other, None))
