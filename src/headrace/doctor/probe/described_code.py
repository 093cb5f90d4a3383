"""Functions and classes of the user's program: their names, where the script defines them, and the globals they use."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from .described_values import class_name
from .stack_sampler import is_users

NUMPY_FUNCTIONS = ("numpy._ArrayFunctionDispatcher", "numpy.ufunc")
"""Classes of numpy's own functions."""
_PLAIN_BASES = frozenset({"builtins.object", "typing.Generic", "typing.Protocol", "abc.ABC"})


def name_of(thing: Any) -> dict[str, Any]:
    """Name a function, a class, a module, or the class of anything else; with its place where it is the script's."""
    if issubclass(type(thing), type):
        return {"type": class_name(thing), **place_of_class(thing)}
    if type(thing) is ModuleType:
        return {"module": thing.__name__}
    if type(thing) is MethodType:
        return name_of(thing.__func__)
    if type(thing) is FunctionType:
        code = thing.__code__
        named = {"function": f"{thing.__module__}.{thing.__qualname__}"}
        return {**named, "file": code.co_filename, "line": code.co_firstlineno} if is_users(code.co_filename) else named
    if type(thing) is BuiltinFunctionType:
        return {"function": f"{thing.__module__ or 'builtins'}.{thing.__qualname__}"}
    if class_name(type(thing)) in NUMPY_FUNCTIONS:
        return {"function": f"numpy.{thing.__name__}"}
    return {"class": class_name(type(thing))}


def _own_functions(kind: type) -> Iterator[FunctionType]:
    """Yield what a class itself defines as functions."""
    for value in vars(kind).values():
        function = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
        function = function.fget if type(function) is property else function
        if type(function) is FunctionType:
            yield function


def place_of_class(kind: type) -> dict[str, Any]:
    """Return file and line of a class of the script's own: the line of its first function before Python 3.13."""
    codes = [function.__code__ for function in _own_functions(kind) if function.__module__ == kind.__module__]
    files = [code.co_filename for code in codes if not code.co_filename.startswith("<string")]
    file = files[0] if files else getattr(sys.modules.get(kind.__module__), "__file__", None)
    if not isinstance(file, str) or kind.__module__ == "builtins" or not is_users(file):
        return {}
    lines = [code.co_firstlineno for code in codes if code.co_filename == file]
    return {"file": file, "line": vars(kind).get("__firstlineno__") or min(lines, default=None)}


def bases_of(kind: type) -> list[str]:
    names = [class_name(base) for base in type.__getattribute__(kind, "__mro__")[1:]]
    return [name for name in names if name not in _PLAIN_BASES]


def _names_in(code: CodeType) -> Iterator[str]:
    """Yield names that code and the code inside it take from globals."""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL":
            yield instruction.argval
    for inner in code.co_consts:
        if type(inner) is CodeType:
            yield from _names_in(inner)


def globals_of(function: FunctionType) -> dict[str, Any]:
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


def class_globals(kind: type) -> dict[str, Any]:
    """Return what the functions of a class of the script's own take from its module."""
    found: dict[str, Any] = {}
    for base in type.__getattribute__(kind, "__mro__"):
        for function in _own_functions(base):
            found.update(globals_of(function))
    return found
