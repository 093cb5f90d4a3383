"""Fields of several parts: a dict for the user, and between the stages a part beside the other, under flat names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

_BETWEEN = "\0"
"""In no name that a dataset or a user gives."""


def part_name(field: str, part: str) -> str:
    """The flat name of a field's part."""
    return f"{field}{_BETWEEN}{part}"


def shown(name: str) -> str:
    """A flat name in words."""
    return name.replace(_BETWEEN, ".")


def nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as the user has them: parts in a dict under their field's name."""
    fields: dict[str, Any] = {}
    for name, value in flat.items():
        field, between, part = name.partition(_BETWEEN)
        if between:
            fields.setdefault(field, {})[part] = value
        else:
            fields[name] = value
    return fields


def flattened(fields: Mapping[str, Any], of_parts: Collection[str]) -> dict[str, Any]:
    """The reverse, for those fields that are `of_parts`; other dicts are values like any other."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if name in of_parts and isinstance(value, dict) and all(isinstance(part, str) for part in value):
            flat |= {part_name(name, part): each for part, each in value.items()}
        else:
            flat[name] = value
    return flat


def fields_of_parts(flat: Iterable[str]) -> set[str]:
    """Names of the fields that have parts."""
    return {name.partition(_BETWEEN)[0] for name in flat if _BETWEEN in name}
