"""Arrow's many types as the few that columns are held in."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_EXACT_IN_FLOAT = 2**53
_MOST_IN_INT64 = 2**63 - 1


class IntegerRange:
    """What of a column of integers or truths decides how it is held: whether some are null, and how wide they are."""

    def __init__(self) -> None:
        self._missing = False
        self._widest = 0

    def see(self, array: pa.Array) -> None:
        array = _plain(array)
        if _is_list(array.type):
            array = _plain(pc.list_flatten(array))
        self._missing |= array.null_count > 0
        if types.is_integer(array.type):
            bounds = pc.min_max(array).as_py()
            self._widest = max([self._widest, *(abs(bound) for bound in bounds.values() if bound is not None)])

    def type(self, whole: pa.DataType) -> pa.DataType | None:
        """`whole` where there is no null, floats where they hold all, None where nothing does."""
        if self._missing:
            return pa.float64() if self._widest <= _EXACT_IN_FLOAT else None
        return whole if self._widest <= _MOST_IN_INT64 else None


def needs_range(type: pa.DataType) -> bool:
    """Whether `held_as` has to know what is in the column."""
    plain = _plain_type(type)
    held = _number_type(_plain_type(plain.value_type) if _is_list(plain) else plain)
    return held is not None and not types.is_floating(held)


def holds_bytes(type: pa.DataType) -> bool:
    """Whether it is binary, or binary is somewhere in it."""
    plain = _plain_type(type)
    if types.is_nested(plain):
        return any(holds_bytes(plain.field(number).type) for number in range(plain.num_fields))
    return bool(
        types.is_binary(plain)
        or types.is_large_binary(plain)
        or types.is_fixed_size_binary(plain)
        or types.is_binary_view(plain)
    )


def is_bytes(type: pa.DataType) -> bool:
    """Return whether each value is bytes, or Hugging Face's image: a struct with `bytes`, and perhaps `path`."""
    plain = _plain_type(type)
    if types.is_struct(plain):
        at = plain.get_field_index("bytes")
        return at >= 0 and not types.is_struct(plain.field(at).type) and is_bytes(plain.field(at).type)
    return bool(types.is_binary(plain) or types.is_large_binary(plain) or types.is_binary_view(plain))


def bytes_and_paths(array: pa.Array) -> tuple[pa.Array, pa.StringArray | None]:
    """Return the bytes of a column that `is_bytes`, and the paths of values without any; None where none has one."""
    array = _plain(array)
    if not types.is_struct(array.type):
        return _with_offsets(array), None
    # Flattened, a child is also null where its parent is.
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
    """The type (see `ManifestSource`) that a column of `type` is converted to: text where there is no other."""
    plain = _plain_type(type)
    item = _plain_type(plain.value_type) if _is_list(plain) else plain
    number = _number_type(item)
    held = number if number is None or seen is None else seen.type(number)
    if not _is_list(plain):
        return pa.string() if held is None else held
    if held is not None and not types.is_boolean(held):
        return pa.list_(held)
    return pa.list_(pa.string()) if _is_text(item) else pa.string()


def converted(array: pa.Array, type: pa.DataType) -> pa.Array:
    """An array as `held_as` says."""
    array = _plain(array)
    if types.is_list(type):
        if types.is_fixed_size_list(array.type):  # whose nulls have a length, too
            array = array.cast(pa.list_(array.type.value_type))
        if array.null_count:
            array = pc.fill_null(array, pa.scalar([], array.type))
        return array.cast(type)
    if not types.is_string(type) or _is_text(array.type) or types.is_temporal(array.type) or types.is_null(array.type):
        return array.cast(type)
    return pa.array([_text(value) for value in array.to_pylist()], type)


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


def _is_list(type: pa.DataType) -> bool:
    return bool(types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type))


def _is_text(type: pa.DataType) -> bool:
    return bool(types.is_string(type) or types.is_large_string(type) or types.is_string_view(type))


def _text(value: Any) -> str:
    if value is None:
        return ""
    return json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, dict | list) else str(value)
