"""Which one type holds all the JSON values of a column, and the values as that type."""

from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa

_INT64 = range(-(2**63), 2**63)
_EXACT_IN_FLOAT = 2**53


class JsonValues:
    """What the values of one column seen so far are."""

    def __init__(self) -> None:
        self._types: set[type] = set()
        self._item_types: set[type] = set()
        self._count = 0
        self._widest = 0

    def see(self, value: Any) -> None:
        if value is None:
            return
        kind = type(value)
        self._count += 1
        self._types.add(kind)
        if kind is int:
            self._widest = max(self._widest, abs(value))
        elif kind is list:
            for item in value:
                self._item_types.add(type(item))
                if type(item) is int:
                    self._widest = max(self._widest, abs(item))

    def type(self, *, of: int) -> pa.DataType:
        """For a column of as many rows: where there are more than values, some are null."""
        if self._types == {list}:
            item = _number(self._item_types, self._widest)
            if item is None and self._item_types <= {str}:
                item = pa.string()
            return pa.string() if item is None else pa.list_(item)
        missing = self._count < of
        if self._types == {bool}:
            return pa.float64() if missing else pa.bool_()
        number = _number(self._types | ({float} if missing else set()), self._widest) if self._types else None
        return pa.string() if number is None else number


def converted(values: list[Any], type: pa.DataType) -> pa.Array:
    """Values as the type that `JsonValues` has found for them: what has no other is text, or the text of its JSON."""
    if pa.types.is_string(type):
        return pa.array([_text(value) for value in values], type)
    if pa.types.is_list(type):
        return pa.array([[] if value is None else value for value in values], type)
    return pa.array(values, type)


def _number(types: set[type], widest: int) -> pa.DataType | None:
    """None unless all are numbers that no conversion changes."""
    if types == {int}:
        return pa.int64() if widest in _INT64 else None
    if types and types <= {int, float}:
        return pa.float64() if widest <= _EXACT_IN_FLOAT else None
    return None


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
