"""Objects of the user's program as JSON: what a dataset, its transforms and its collate function hold.

Nothing of the user's runs: no property, no `__repr__`, no `__len__`. Attributes are read from an object's `__dict__`
and slots by the descriptors of `type`, containers by the methods of the built-in class that they derive from. Only
numpy, torch, pandas, pyarrow and Pillow are asked by their own properties. docs/doctor/evidence.md describes the form.
"""

from __future__ import annotations

import dis
import enum
import functools
import math
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, Callable

from .stack_sampler import is_users

MOST_CHARS = 64_000
"""Of all that is described at once, as JSON."""
MOST_LEVELS = 14
"""Of objects and containers inside one another."""
MOST_ELEMENTS = 64
"""Of a container or an array that is written whole; of a longer one `FIRST` are."""
FIRST = 3
MOST_TEXT = 200
MOST_NAMES = 64
"""Attributes of an object, and globals of a function."""
_CUT_CHARS = 50
"""Kept for each object that waits: it may have to be cut."""
_BIGGEST = 1 << 63
_WRITTEN_TYPES = (bool, int, str, float)
_PLAIN_FORMS: tuple[tuple[type, Callable[[Any], Any]], ...] = (
    (int, int.__int__),
    (float, float.__float__),
    (str, str.__str__),
)
"""How an object of a class derived from these becomes one of these, whatever that class says."""
_NUMBERS = "biuf"
"""Kinds of numpy's dtypes that are written by value."""
_NUMPY_FUNCTIONS = ("numpy._ArrayFunctionDispatcher", "numpy.ufunc")
_TABLES = ("pandas.", "pyarrow.")
_PLAIN_BASES = frozenset({"builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"})


def class_name(kind: type) -> str:
    """Return module and qualified name of a class."""
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


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
                return _plain(thing) if type(thing) in (bool, int, type(None)) else self._cut(thing)
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
            return _plain(thing)
        if issubclass(kind, enum.Enum):
            state = _attributes(thing)
            value = state.get("_value_")
            named = {"enum": class_name(kind), "name": state.get("_name_")}
            return {**named, "value": _plain(value)} if type(value) in _WRITTEN_TYPES else named
        for base, plain in _PLAIN_FORMS:
            if issubclass(kind, base):
                return _plain(plain(thing))
        for base in (bytes, bytearray):
            if issubclass(kind, base):
                return {"bytes": base.__len__(thing)}
        if issubclass(kind, (list, tuple, set, frozenset, deque, dict)):
            return self._container(thing, kind, level, place)
        library = self._of_library(thing, kind)
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
            first: list[Any] = [[_key(key), None] for key, _ in islice(items, FIRST)]
            for pair, (_, value) in zip(first, items):
                self._put(pair, 1, value, level + 2, f"{place}.{pair[0]}")
            return {**named, "dict_of": count, "first": first}
        found: dict[str, Any] = {}
        for key, value in items:
            text = _key(key)
            found[text] = None
            self._put(found, text, value, level + 1, f"{place}.{text}")
        return {**named, "dict": found}

    def _object(self, thing: Any, kind: type, level: int, place: str) -> dict[str, Any]:
        known = self._places.setdefault(id(thing), place)
        if known != place:
            return {**_name_of(thing), "again": known}
        if kind is functools.partial:
            return self._partial(thing, level, place)
        if issubclass(kind, type):
            return self._with_globals(_name_of(thing), _class_globals(thing), level, place)
        if kind is MethodType:
            found = _name_of(thing.__func__)
            if id(thing.__self__) in self._places:  # as where an object holds its own methods
                return found
            self._put(found, "self", thing.__self__, level + 1, f"{place}.self")
            return found
        if kind is FunctionType:
            found = self._with_globals(_name_of(thing), _globals_of(thing), level, place)
            for name, cell in zip(thing.__code__.co_freevars, thing.__closure__ or ()):
                try:
                    held = cell.cell_contents
                except ValueError:  # it is still empty
                    continue
                self._put(found.setdefault("closure", {}), name, held, level + 1, f"{place}.closure.{name}")
            return found
        if kind in (BuiltinFunctionType, ModuleType) or class_name(kind) in _NUMPY_FUNCTIONS:
            return _name_of(thing)
        found = {"class": class_name(kind), **_place_of_class(kind)}
        if "file" in found:
            found["bases"] = _bases(kind)
            self._with_globals(found, _class_globals(kind), level, place)
        return self._with_attributes(found, _attributes(thing), level, place)

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
        found = _name_of(thing.func)
        given: dict[str, Any] = {"arguments": [None] * len(thing.args), "keywords": dict.fromkeys(thing.keywords)}
        for number, value in enumerate(thing.args):
            self._put(given["arguments"], number, value, level + 1, f"{place}.{number}")
        for name, value in thing.keywords.items():
            self._put(given["keywords"], name, value, level + 1, f"{place}.{name}")
        return {**found, "partial": given}

    def _of_library(self, thing: Any, kind: type) -> Any:
        """Describe what a library knows better than its attributes tell; None of anything else."""
        name = class_name(kind)
        if name.startswith("pathlib."):
            return {"path": _text(str(thing))}
        if name == "builtins.range":
            return {"range": [thing.start, thing.stop, thing.step]}
        if name.startswith(_TABLES):
            return _table(thing, name)
        numpy, torch, image = (sys.modules.get(module) for module in ("numpy", "torch", "PIL.Image"))
        if numpy is not None:
            if issubclass(kind, numpy.generic):
                return _plain(thing.item())
            if issubclass(kind, numpy.dtype):
                return {"dtype": thing.name}
            if issubclass(kind, numpy.ndarray):
                return array_facts(thing)
        if torch is not None:
            if kind is getattr(torch, "dtype", None):
                return {"dtype": str(thing).rpartition(".")[2]}
            if kind is getattr(torch, "device", None):
                return {"device": str(thing)}
            if issubclass(kind, getattr(torch, "Tensor", ())):
                return array_facts(thing)
        if image is not None and issubclass(kind, image.Image):
            return {"class": name, "mode": thing.mode, "size": list(thing.size)}
        return None


def array_facts(thing: Any) -> dict[str, Any]:
    """Describe a numpy array or a tensor: its shape and dtype, and the values of a small one."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and issubclass(type(thing), numpy.ndarray):
        found: dict[str, Any] = {"array": "numpy", "shape": list(thing.shape), "dtype": thing.dtype.name}
        if thing.size <= MOST_ELEMENTS and thing.dtype.kind in _NUMBERS:
            found["values"] = [_plain(value) for value in numpy.ndarray.ravel(thing).tolist()]
        return found
    assert torch is not None
    with torch._C.DisableTorchFunctionSubclass():
        found = {"array": "torch", "shape": list(thing.shape), "dtype": str(thing.dtype).rpartition(".")[2]}
        is_plain = type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu"
        if is_plain and thing.numel() <= MOST_ELEMENTS and not thing.is_complex():
            found["values"] = [_plain(value) for value in thing.detach().reshape(-1).tolist()]
    return found


def _plain(value: Any) -> Any:
    """Return what JSON can hold of None, a number or a text."""
    if type(value) is str:
        return _text(value)
    if type(value) is float and not math.isfinite(value):
        return {"float": repr(value)}
    if type(value) is int and not -_BIGGEST <= value < _BIGGEST:
        return {"int": hex(value)[:MOST_TEXT]}
    return value


def _text(text: str) -> Any:
    return text if len(text) <= MOST_TEXT else {"text": len(text), "first": text[:MOST_TEXT]}


def _key(key: Any) -> str:
    if type(key) is str:
        return key[:MOST_TEXT]
    return repr(key)[:MOST_TEXT] if type(key) in (bool, int, float, bytes, type(None)) else f"<{class_name(type(key))}>"


def json_chars(found: Any) -> int:
    """Estimate what a description takes as JSON, without what waits to be put into it."""
    if isinstance(found, dict):
        return 2 + sum(len(key) + 4 + json_chars(value) for key, value in found.items())
    if isinstance(found, list):
        return 2 + sum(1 + json_chars(value) for value in found)
    return len(found) + 2 if isinstance(found, str) else 6


def _name_of(thing: Any) -> dict[str, Any]:
    """Name a function, a class, a module, or the class of anything else; with its place where it is the script's."""
    if issubclass(type(thing), type):
        return {"type": class_name(thing), **_place_of_class(thing)}
    if type(thing) is ModuleType:
        return {"module": thing.__name__}
    if type(thing) is MethodType:
        return _name_of(thing.__func__)
    if type(thing) is FunctionType:
        code = thing.__code__
        named = {"function": f"{thing.__module__}.{thing.__qualname__}"}
        return {**named, "file": code.co_filename, "line": code.co_firstlineno} if is_users(code.co_filename) else named
    if type(thing) is BuiltinFunctionType:
        return {"function": f"{thing.__module__ or 'builtins'}.{thing.__qualname__}"}
    if class_name(type(thing)) in _NUMPY_FUNCTIONS:
        return {"function": f"numpy.{thing.__name__}"}
    return {"class": class_name(type(thing))}


def _own_functions(kind: type) -> Iterator[FunctionType]:
    """Yield what a class itself defines as functions."""
    for value in vars(kind).values():
        function = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
        function = function.fget if type(function) is property else function
        if type(function) is FunctionType:
            yield function


def _place_of_class(kind: type) -> dict[str, Any]:
    """Return file and line of a class of the script's own: the line of its first function before Python 3.13."""
    codes = [function.__code__ for function in _own_functions(kind) if function.__module__ == kind.__module__]
    files = [code.co_filename for code in codes if not code.co_filename.startswith("<string")]
    file = files[0] if files else getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not isinstance(file, str) or kind.__module__ == "builtins" or not is_users(file):
        return {}
    lines = [code.co_firstlineno for code in codes if code.co_filename == file]
    return {"file": file, "line": vars(kind).get("__firstlineno__") or min(lines, default=None)}


def _bases(kind: type) -> list[str]:
    names = [class_name(base) for base in type.__getattribute__(kind, "__mro__")[1:]]
    return [name for name in names if name not in _PLAIN_BASES]


def _attributes(thing: Any) -> dict[str, Any]:
    """Return an object's attributes, by `__dict__` and slots; a module's with its parameters, buffers and modules."""
    found: dict[str, Any] = {}
    for base in type.__getattribute__(type(thing), "__mro__"):
        own = vars(base)
        state = own.get("__dict__")
        if type(state) is GetSetDescriptorType:
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


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield names that code and the code inside it take from globals."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if type(inner) is CodeType:
            yield from _names_in(inner)


def _globals_of(function: FunctionType) -> dict[str, Any]:
    """Return the objects and functions of the script's own that one of its functions takes from its module."""
    if not is_users(function.__code__.co_filename):
        return {}
    held = {name: function.__globals__[name] for name in _names_in(function.__code__) if name in function.__globals__}
    return {name: value for name, value in held.items() if _is_told(value)}


def _is_told(value: Any) -> bool:
    """Tell whether a global says something about the data: no module, no class, and no function of a library's."""
    if issubclass(type(value), (type, ModuleType, BuiltinFunctionType)):
        return False
    return type(value) is not FunctionType or is_users(value.__code__.co_filename)


def _class_globals(kind: type) -> dict[str, Any]:
    """Return what the functions of a class of the script's own take from its module."""
    found: dict[str, Any] = {}
    for base in type.__getattribute__(kind, "__mro__"):
        for function in _own_functions(base):
            found.update(_globals_of(function))
    return found


def _table(thing: Any, name: str) -> Any:
    """Describe a table of pandas or pyarrow by its rows and columns; None of what is none."""
    if name.endswith("DataFrame"):
        columns = [_key(column) for column in islice(thing.columns, MOST_ELEMENTS)]
        return {"class": name, "rows": int(thing.shape[0]), "columns": columns}
    if name.endswith(".Series"):
        return {"class": name, "rows": int(thing.shape[0]), "columns": [_key(thing.name)]}
    if name in ("pyarrow.lib.Table", "pyarrow.lib.RecordBatch"):
        return {"class": name, "rows": thing.num_rows, "columns": thing.schema.names[:MOST_ELEMENTS]}
    return None
