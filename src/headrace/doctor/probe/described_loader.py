"""Description of a DataLoader as JSON: the class of its dataset, and its sampling order.

No user code runs. docs/doctor/session.md describes the form.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import Any

from .described_values import attributes_of, class_name

MOST_NAMES = 64
MOST_TEXT = 200
MOST_LEVELS = 4
"""Maximum levels of nested samplers."""
_INNER = ("sampler", "batch_sampler")
_PLAIN_BASES = ("builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC")


def described_loader(loader: Any, wrapper: Any) -> dict[str, Any]:
    """Describe a DataLoader. `wrapper` is the library object that iterates it, or None."""
    kind = type(loader.dataset)
    bases = [class_name(base) for base in type.__getattribute__(kind, "__mro__")[1:]]
    found = {
        "dataset": {"class": class_name(kind), "bases": [name for name in bases if name not in _PLAIN_BASES]},
        "sampler": _order(loader.sampler),
        "batch_sampler": _order(loader.batch_sampler),
        "drop_last": bool(loader.drop_last),
        "generator": loader.generator is not None,
    }
    return found if wrapper is None else {**found, "wrapper": {"class": class_name(type(wrapper))}}


def sampler_epoch(loader: Any) -> int | None:
    """Return the epoch that a loader's sampler shuffles by; None if it has none."""
    sampler = getattr(loader, "sampler", None)
    epoch = None if sampler is None else attributes_of(sampler).get("epoch")
    return epoch if type(epoch) is int else None


def _order(sampler: Any, level: int = 0) -> dict[str, Any] | None:
    """Describe a sampler by its class, its plain attributes, and its inner sampler."""
    if sampler is None:
        return None
    held: dict[str, Any] = {}
    for name, value in islice(attributes_of(sampler).items(), MOST_NAMES):
        if _is_plain(value):
            held[name] = value
        elif name in _INNER and level < MOST_LEVELS:
            held[name] = _order(value, level + 1)
    return {"class": class_name(type(sampler)), "attributes": held}


def _is_plain(value: Any) -> bool:
    """Return True if JSON can represent the value exactly."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or type(value) is bool or (type(value) is str and len(value) <= MOST_TEXT)
