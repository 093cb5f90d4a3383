"""Objects of the user's program as JSON: what a dataset, its transforms and its collate function hold.

Nothing of the user's runs: no property, no `__repr__`, no `__len__`. Attributes are read from an object's `__dict__`
and slots by the descriptors of `type`, containers by the methods of the built-in class that they derive from.
docs/doctor/evidence.md describes the form.
"""

from __future__ import annotations

import enum
import functools
import sys
from collections import deque
from collections.abc import Mapping
from itertools import islice
from types import (
    BuiltinFunctionType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Callable

from .described_code import NUMPY_FUNCTIONS, bases_of, class_globals, globals_of, name_of, place_of_class
from .described_values import FIRST, MOST_ELEMENTS, class_name, json_chars, key_text, of_library, plain

MOST_CHARS = 64_000
"""Of all that is described at once, as JSON."""
MOST_LEVELS = 14
"""Of objects and containers inside one another."""
MOST_NAMES = 64
"""Attributes of an object, and globals of a function."""
_CUT_CHARS = 50
"""Kept for each object that waits: it may have to be cut."""
_WRITTEN_TYPES = (bool, int, str, float)
_PLAIN_FORMS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
)
"""How an object of a class derived from these becomes one of these, whatever that class says."""


class ObjectDescriber:
    """Describer of objects level by level, so that what lies deep is cut where room ends, and not what comes late.

    An object that several places hold is described where it lies highest; elsewhere `again` says where that is.
    """

    def __init__(self, most_chars: int = MOST_CHARS, known: Mapping[int, str] | None = None) -> None:
        """`known`: objects by their ids that are described elsewhere, and where."""
        self._left = most_chars
        self._places = dict(known or {})
        """Where each object is described, by its id."""
        self._waiting: deque[tuple[Any, Any, Any, int, str]] = deque()
        """What is not described yet: the container and key that it goes to, itself, its level, and its place."""

    def describe(self, things: Mapping[str, Any]) -> dict[str, Any]:
        """Return descriptions by name."""
        found: dict[str, Any] = {}
        for name, thing in things.items():
            self._put(found, name, thing, 0, name)
        while self._waiting:
            container, key, thing, level, place = self._waiting.popleft()
            self._left += _CUT_CHARS
            container[key] = self._guarded(thing, level, place)
        return found

    def _put(self, container: Any, key: Any, thing: Any, level: int, place: str) -> None:
        self._left -= _CUT_CHARS
        self._waiting.append((container, key, thing, level, place))

    def _guarded(self, thing: Any, level: int, place: str) -> Any:
        try:
            if self._left <= 0 or level > MOST_LEVELS:
                return plain(thing) if type(thing) in (bool, int, type(None)) else self._cut(thing)
            found = self._one(thing, level, place)
        except Exception as error:
            found = {"class": class_name(type(thing)), "failed": type(error).__name__}
        self._left -= json_chars(found)
        return found

    def _cut(self, thing: Any) -> dict[str, Any]:
        return {"class": class_name(type(thing)), "cut": True}

    def _one(self, thing: Any, level: int, place: str) -> Any:
        kind = type(thing)
        if thing is None or kind in _WRITTEN_TYPES:
            return plain(thing)
        if issubclass(kind, enum.Enum):
            state = attributes_of(thing)
            value = state.get("_value_")
            named = {"enum": class_name(kind), "name": state.get("_name_")}
            return {**named, "value": plain(value)} if type(value) in _WRITTEN_TYPES else named
        for base, plain_form in _PLAIN_FORMS:
            if issubclass(kind, base):
                return plain(plain_form(thing))
        for base in (bytes, bytearray):
            if issubclass(kind, base):
                return {"bytes": base.__len__(thing)}
        if issubclass(kind, (list, tuple, set, frozenset, deque, dict)):
            return self._container(thing, kind, level, place)
        library = of_library(thing, kind)
        return library if library is not None else self._object(thing, kind, level, place)

    def _container(self, thing: Any, kind: type, level: int, place: str) -> Any:
        if issubclass(kind, tuple) and type(vars(kind).get("_fields")) is tuple:
            names = [name for name in vars(kind)["_fields"] if type(name) is str]
            return self._with_attributes(
                {"class": class_name(kind)}, dict(zip(names, tuple.__iter__(thing))), level, place
            )
        if issubclass(kind, dict):
            return self._dict(thing, kind, level, place)
        base = next(one for one in (list, tuple, set, frozenset, deque) if issubclass(kind, one))
        count = base.__len__(thing)
        elements = list(islice(base.__iter__(thing), count if count <= MOST_ELEMENTS else FIRST))
        if base in (set, frozenset) and all(type(element) is str for element in elements):
            elements.sort()
        found: list[Any] = [None] * len(elements)
        for number, element in enumerate(elements):
            self._put(found, number, element, level + 1, f"{place}.{number}")
        return found if count <= MOST_ELEMENTS else {"list": count, "first": found}

    def _dict(self, thing: Any, kind: type, level: int, place: str) -> dict[str, Any]:
        items = dict.items(thing)
        count = len(items)
        named = {} if kind.__module__ in ("builtins", "collections") else {"class": class_name(kind)}
        if count > MOST_ELEMENTS:
            first: list[Any] = [[key_text(key), None] for key, _ in islice(items, FIRST)]
            for pair, (_, value) in zip(first, items):
                self._put(pair, 1, value, level + 2, f"{place}.{pair[0]}")
            return {**named, "dict_of": count, "first": first}
        found: dict[str, Any] = {}
        for key, value in items:
            text = key_text(key)
            found[text] = None
            self._put(found, text, value, level + 1, f"{place}.{text}")
        return {**named, "dict": found}

    def _object(self, thing: Any, kind: type, level: int, place: str) -> dict[str, Any]:
        known = self._places.setdefault(id(thing), place)
        if known != place:
            return {**name_of(thing), "again": known}
        if kind is functools.partial:
            return self._partial(thing, level, place)
        if issubclass(kind, type):
            return self._with_globals(name_of(thing), class_globals(thing), level, place)
        if kind is MethodType:
            found = name_of(thing.__func__)
            if id(thing.__self__) in self._places:  # as where an object holds its own methods
                return found
            self._put(found, "self", thing.__self__, level + 1, f"{place}.self")
            return found
        if kind is FunctionType:
            found = self._with_globals(name_of(thing), globals_of(thing), level, place)
            for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or ()):
                try:
                    held = cell.cell_contents
                except ValueError:  # it is still empty
                    continue
                self._put(found.setdefault("closure", {}), name, held, level + 1, f"{place}.closure.{name}")
            return found
        if kind in (BuiltinFunctionType, ModuleType) or class_name(kind) in NUMPY_FUNCTIONS:
            return name_of(thing)
        found = {"class": class_name(kind), **place_of_class(kind)}
        if "file" in found:
            found["bases"] = bases_of(kind)
            self._with_globals(found, class_globals(kind), level, place)
        return self._with_attributes(found, attributes_of(thing), level, place)

    def _with_attributes(
        self, found: dict[str, Any], attributes: Mapping[str, Any], level: int, place: str
    ) -> dict[str, Any]:
        held: dict[str, Any] = {}
        found["attributes"] = held
        for name, value in islice(attributes.items(), MOST_NAMES):
            held[name] = None
            self._put(held, name, value, level + 1, f"{place}.{name}")
        return found

    def _with_globals(self, found: dict[str, Any], used: Mapping[str, Any], level: int, place: str) -> dict[str, Any]:
        for name, value in islice(used.items(), MOST_NAMES):
            self._put(found.setdefault("globals", {}), name, value, level + 1, f"{place}.globals.{name}")
        return found

    def _partial(self, thing: Any, level: int, place: str) -> dict[str, Any]:
        found = name_of(thing.func)
        given: dict[str, Any] = {"arguments": [None] * len(thing.args), "keywords": dict.fromkeys(thing.keywords)}
        for number, value in enumerate(thing.args):
            self._put(given["arguments"], number, value, level + 1, f"{place}.{number}")
        for name, value in thing.keywords.items():
            self._put(given["keywords"], name, value, level + 1, f"{place}.{name}")
        return {**found, "partial": given}


def attributes_of(thing: Any) -> dict[str, Any]:
    """Return an object's attributes, by `__dict__` and slots; a module's with its parameters, buffers and modules."""
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
                except AttributeError:  # it is not set
                    continue
    if "_parameters" in found and "_buffers" in found:
        return _module_attributes(found)
    return found


def _module_attributes(state: dict[str, Any]) -> dict[str, Any]:
    """Return what a torch.nn.Module was given, in place of how it keeps it."""
    found: dict[str, Any] = {}
    for kept in ("_parameters", "_buffers", "_modules"):
        if isinstance(state.get(kept), dict):
            found.update(state[kept])
    torch = sys.modules.get("torch.nn")
    usual = vars(torch.Module()) if torch is not None else {}
    found.update((name, value) for name, value in state.items() if name not in usual)
    return found
