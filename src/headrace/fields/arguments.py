"""What fields' arguments have to be."""

from __future__ import annotations

import sys

from headrace.errors import UsageError


def is_number(value: object) -> bool:
    """Whether it is an int or a float that a double can hold, and no bool."""
    most = sys.float_info.max
    return isinstance(value, int | float) and not isinstance(value, bool) and -most <= value <= most


def check_bool(field: str, name: str, value: object) -> None:
    """Raises UsageError for what is only true in a sense, such as "no"."""
    if not isinstance(value, bool):
        raise UsageError(f"{field}: expected {name} to be True or False, got {value!r}")
