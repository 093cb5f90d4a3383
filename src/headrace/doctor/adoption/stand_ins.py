"""Objects rebuilt from their descriptions in the evidence: the same class names and attributes, without the libraries.

`headrace.from_torchvision` and its kin read transforms by these alone. docs/doctor/evidence.md has the form of a
description. What a description lacks (a long list's elements, an object that was cut) is rebuilt as something that has
no attributes and no elements, so that whoever needs it finds it missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

import numpy as np

MOST_REPR = 120


class StandIn:
    """Object of a class that is known by its name. Each class has a class of its own, derived from this one."""

    described: Mapping[str, Any] = {}
    module_names: Mapping[str, Any] = {}
    """What the functions of a class of the script's own take from their module."""

    def __iter__(self) -> Iterator[Any]:
        """Yield the modules of an nn.Sequential, whose attributes are numbers."""
        return iter([value for name, value in vars(self).items() if name.isdecimal()])

    def __repr__(self) -> str:
        shown = {name: value for name, value in vars(self).items() if not name.startswith("_") and _is_shown(value)}
        text = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({text})" if len(text) <= MOST_REPR else f"{type(self).__name__}({text[:117]}…)"


def _is_shown(value: Any) -> bool:
    """Tell whether a library would write an attribute where it writes its transform: settings, no inner state."""
    if value is None or isinstance(value, Missing | dict):
        return False
    return not isinstance(value, StandIn) or not class_of(value).startswith(("numpy.", "random."))


class EnumStandIn:
    """Member of an enum. Numbers compare as IntEnum's do."""

    def __init__(self, kind: str, name: str, value: Any) -> None:
        self.kind, self.name, self.value = kind, name, value

    def __int__(self) -> int:
        return int(self.value)

    def __repr__(self) -> str:
        return f"{self.kind.rpartition('.')[2]}.{self.name}"


class FunctionStandIn:
    """Function, or a class used as one, with what it takes from its module and from around it."""

    def __init__(self, name: str, file: str | None, line: int | None) -> None:
        self.name, self.file, self.line = name, file, line
        self.__qualname__ = name.rpartition(".")[2]
        self.names: dict[str, Any] = {}
        """Globals and closure."""
        self.bound: Any = None
        """`self` of a method."""
        self.arguments: list[Any] = []
        self.keywords: dict[str, Any] = {}

    def __repr__(self) -> str:
        return f"{self.__qualname__}()"


class DtypeStandIn:
    """dtype of torch's or numpy's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"


@dataclass(frozen=True)
class LongList:
    """List of which a description has the first elements only."""

    count: int
    first: list[Any] = field(default_factory=list)


def first_rows(table: Any) -> tuple[Any, ...]:
    """Return the first rows of a list, as values that can be keys: lists as tuples, of dicts the pairs."""
    if isinstance(table, np.ndarray):
        table = table.tolist()
    first = table.first if isinstance(table, LongList) else table[:3] if isinstance(table, list) else []
    return tuple(map(_frozen, first))


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple((key, _frozen(one)) for key, one in value.items())
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


@dataclass(frozen=True)
class LongArray:
    """Array of which a description has no values."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class TableStandIn:
    """Table of pandas or pyarrow."""

    kind: str
    rows: int
    columns: list[str]


@dataclass(frozen=True)
class Missing:
    """Object that was cut, or could not be described."""

    kind: str


def made(module: str, name: str, **attributes: Any) -> StandIn:
    """Return an object with these attributes, as a rebuilt one has them."""
    one: StandIn = type(name, (StandIn,), {"__module__": module, "described": {}})()
    vars(one).update(attributes)
    return one


def class_of(thing: Any) -> str:
    """Return module and name of a rebuilt object's class."""
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def bases_of(thing: Any) -> list[str]:
    """Return the names of a rebuilt object's class and of its bases."""
    described = type(thing).described if isinstance(thing, StandIn) else {}
    return [class_of(thing), *described.get("bases", [])]


def is_own(thing: Any) -> bool:
    """Tell whether a rebuilt object's class is the script's own."""
    return isinstance(thing, StandIn) and "file" in type(thing).described


def names_of(thing: Any) -> dict[str, Any]:
    """Return what the functions of a rebuilt object's class take from their module."""
    return dict(type(thing).module_names) if isinstance(thing, StandIn) else {}


class Rebuilding:
    """Rebuilt objects of one loader's `described` facts, by name: `dataset`, `collate` and others."""

    def __init__(self, described: Mapping[str, Any]) -> None:
        self._places: dict[str, Any] = {}
        self._made: dict[str, Any] = {}
        for name, thing in described.items():
            self._note(thing, name)
        self.objects = {name: self._rebuilt(thing, name) for name, thing in described.items()}

    def _note(self, thing: Any, place: str) -> None:
        """Note where each description lies, as the probe names places."""
        self._places[place] = thing
        for key, value in _parts(thing):
            self._note(value, f"{place}.{key}")

    def _rebuilt(self, thing: Any, place: str) -> Any:
        if isinstance(thing, list):
            return [self._rebuilt(value, f"{place}.{number}") for number, value in enumerate(thing)]
        if not isinstance(thing, dict):
            return thing
        if isinstance(again := thing.get("again"), str) and again in self._places and again != place:
            if place.startswith(f"{again}."):
                return Missing(str(again))  # an object that holds itself
            found = self._places[again]
            return Missing(str(again)) if "again" in found else self._rebuilt(found, again)
        if place not in self._made:
            self._made[place] = Missing(place)  # of an object that holds itself
            self._make(thing, place)
        return self._made[place]

    def _make(self, thing: dict[str, Any], place: str) -> None:
        if "class" in thing and "attributes" in thing:
            made = self._made[place] = _stand_in(thing)
            self._fill(vars(made), thing["attributes"], place)
            taken: dict[str, Any] = {}
            self._fill(taken, thing.get("globals", {}), f"{place}.globals")
            type(made).module_names = taken
        elif "function" in thing or "type" in thing:
            function = FunctionStandIn(
                str(thing.get("function", thing.get("type"))), thing.get("file"), thing.get("line")
            )
            self._made[place] = function
            self._fill_function(function, thing, place)
        else:
            self._made[place] = self._plain(thing, place)

    def _fill(self, into: dict[str, Any], values: Mapping[str, Any], place: str) -> None:
        into.update((name, self._rebuilt(value, f"{place}.{name}")) for name, value in values.items())

    def _fill_function(self, function: FunctionStandIn, thing: dict[str, Any], place: str) -> None:
        self._fill(function.names, thing.get("globals", {}), f"{place}.globals")
        self._fill(function.names, thing.get("closure", {}), f"{place}.closure")
        if "self" in thing:
            function.bound = self._rebuilt(thing["self"], f"{place}.self")
        partial = thing.get("partial", {})
        function.arguments = self._rebuilt(partial.get("arguments", []), place)
        self._fill(function.keywords, partial.get("keywords", {}), place)

    def _plain(self, thing: dict[str, Any], place: str) -> Any:
        """Return what a description of a value holds."""
        if "enum" in thing:
            return EnumStandIn(str(thing["enum"]), str(thing.get("name")), thing.get("value"))
        if "array" in thing:
            return _array(thing)
        if "list" in thing:
            return LongList(thing["list"], self._rebuilt(thing.get("first", []), place))
        if "dict" in thing:
            return {key: self._rebuilt(value, f"{place}.{key}") for key, value in thing["dict"].items()}
        if "dtype" in thing:
            return DtypeStandIn(str(thing["dtype"]))
        if "path" in thing:
            return PurePosixPath(thing["path"]) if isinstance(thing["path"], str) else Missing("path")
        if "range" in thing:
            return range(*thing["range"])
        if "float" in thing:
            return float(thing["float"])
        if "rows" in thing:
            return TableStandIn(str(thing["class"]), thing["rows"], list(thing.get("columns", [])))
        return Missing(str(thing.get("class", next(iter(thing), ""))))


def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    """Yield what lies in a description, by the last part of its place."""
    if isinstance(thing, list):
        yield from ((str(number), value) for number, value in enumerate(thing))
    if not isinstance(thing, dict):
        return
    for key in ("attributes", "dict"):
        yield from thing.get(key, {}).items()
    for key in ("globals", "closure"):
        yield from ((f"{key}.{name}", value) for name, value in thing.get(key, {}).items())
    if "self" in thing:
        yield "self", thing["self"]
    if isinstance(thing.get("first"), list):
        yield from ((str(number), value) for number, value in enumerate(thing["first"]))
    partial = thing.get("partial", {})
    yield from ((str(number), value) for number, value in enumerate(partial.get("arguments", [])))
    yield from partial.get("keywords", {}).items()


def _stand_in(thing: dict[str, Any]) -> StandIn:
    module, _, name = str(thing["class"]).rpartition(".")
    described = {key: value for key, value in thing.items() if key not in ("attributes", "globals")}
    kind = type(name or "object", (StandIn,), {"__module__": module, "described": described})
    made: StandIn = kind()
    return made


def _array(thing: dict[str, Any]) -> Any:
    shape, dtype = tuple(thing.get("shape", ())), str(thing.get("dtype"))
    try:
        return np.array(thing["values"], dtype="float32" if dtype == "bfloat16" else dtype).reshape(shape)
    except (KeyError, TypeError, ValueError):
        return LongArray(shape, dtype)
