"""Objects of the user's program described by class name and attributes, without running user code."""

from __future__ import annotations

import math
import sys
from itertools import islice
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any


def class_name(kind: type) -> str:
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


def attributes_of(thing: Any) -> dict[str, Any]:
    """Return an object's attributes from `__dict__` and slots; for a module, its parameters, buffers and submodules."""
    found: dict[str, Any] = {}
    for base in type.__getattribute__(type(thing), "__mro__"):
        own = vars(base)
        state = own.get("__dict__")
        if type(state) in (GetSetDescriptorType, MemberDescriptorType):
            for name, value in dict.items(state.__get__(thing)):
                if type(name) is str:
                    found.setdefault(name, value)
        for name, slot in own.items():
            if type(slot) is MemberDescriptorType and not name.startswith("__"):
                try:
                    found.setdefault(name, slot.__get__(thing))
                except AttributeError:  # not set
                    continue
    if "_parameters" in found and "_buffers" in found:
        return _module_attributes(found)
    return found


def _module_attributes(state: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes set on a torch.nn.Module, rather than its internal state."""
    found: dict[str, Any] = {}
    for kept in ("_parameters", "_buffers", "_modules"):
        if isinstance(state.get(kept), dict):
            found.update(state[kept])
    torch = sys.modules.get("torch.nn")
    usual = vars(torch.Module()) if torch is not None else {}
    found.update((name, value) for name, value in state.items() if name not in usual)
    return found


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
