"""Objects of the user's program described by class name and attributes, without running user code."""

from __future__ import annotations

import sys
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
