"""Fields of dataclasses and of structs, and copies with changed fields, as Python 3.13's `copy.replace` makes them."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec


def field_names(value: Any) -> tuple[str, ...]:
    """Names of its fields; none of any other value."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__
    is_plain = dataclasses.is_dataclass(value) and not isinstance(value, type)
    return tuple(field.name for field in dataclasses.fields(value)) if is_plain else ()


def replace(value: Any, **changes: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    return dataclasses.replace(value, **changes)
