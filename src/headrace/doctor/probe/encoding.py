"""Records as lines of JSON, whatever values they hold."""

from __future__ import annotations

import json
import math
import operator
from typing import Any, Callable

# Without escapes beyond those of control characters, so that what is no Unicode shows when it is encoded.
_encode: Callable[[Any], str] = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def line(record: tuple[Any, ...]) -> bytes:
    """`record` as UTF-8 JSON and a line feed. What JSON knows nothing of becomes the nearest that it does: a number of
    another library the number, NaN and infinity null, half a surrogate pair `?`, anything else its text."""
    try:
        text = _encode(record)
    except (TypeError, ValueError):
        text = _encode(_plain(record))
    return text.encode("utf-8", "replace") + b"\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(inner) for inner in value]
    if hasattr(value, "__index__"):
        return operator.index(value)
    if hasattr(value, "__float__"):
        number = float(value)
        return number if math.isfinite(number) else None
    return str(value)
