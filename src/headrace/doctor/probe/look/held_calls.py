"""Functions and callable objects of the user's own that make numbers from texts, such as a tokenizer."""

from __future__ import annotations

import inspect
import math
import sys
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, Callable

from .leaves import as_array

_LIBRARIES = {
    *getattr(sys, "stdlib_module_names", ()),
    *("torch", "torchvision", "timm", "albumentations", "kornia", "numpy", "PIL", "cv2", "pandas", "pyarrow"),
    *("transformers", "tokenizers", "datasets", "webdataset", "headrace"),
}
"""Libraries whose objects are known otherwise, or make no tokens."""
_KINDS = (("batch", lambda call, texts: call(texts)), ("one", lambda call, texts: [call(text) for text in texts]))
"""Ways to give texts to a callable, by name: all as one list, or one by one."""


def is_own_call(thing: Any) -> bool:
    """Return True for a Python function, or an object with `__call__` in Python, of no known library."""
    kind = _kind_of(thing)
    function = kind if kind is thing else getattr(kind, "__call__", None)  # noqa: B004  # the function itself
    module = getattr(kind, "__module__", None) or ""
    return type(function) is FunctionType and module != "" and module.partition(".")[0] not in _LIBRARIES


def _kind_of(thing: Any) -> Any:
    """Return a function itself, or an object's class."""
    return thing if type(thing) is FunctionType else type(thing)


def texts_given(make: Callable[[], Any]) -> dict[Any, set[str]]:
    """Make a sample, and return the texts that each function's code was given, alone or in a list of one."""
    found: dict[Any, set[str]] = {}

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            code = frame.f_code
            for name in code.co_varnames[: code.co_argcount]:
                value = frame.f_locals.get(name)
                value = value[0] if type(value) in (list, tuple) and len(value) == 1 else value
                if type(value) is str:
                    found.setdefault(code, set()).add(value)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        make()
    except Exception:  # of the user's own code
        return {}
    finally:
        sys.setprofile(before)
    return found


def calls_seen(
    things: Iterable[Any], given: dict[Any, set[str]], texts: dict[str, list[str]], until: float
) -> Iterator[tuple[dict[str, Any], Any]]:
    """Yield what each callable makes of the texts of a column: its description, and int64 [texts, length].

    Only what the dataset itself has `given` the first text of the column is called: anything else, such as a function
    that removes a file, may do harm. A callable that raises, makes no rows of one length, or makes others on a second
    call is skipped.
    """
    for thing in things:
        function = thing if _kind_of(thing) is thing else type(thing).__call__
        for column, its in texts.items():
            if its[0] not in given.get(function.__code__, ()):
                continue
            for kind, call in _KINDS:
                if time.monotonic() > until:
                    return
                rows = _rows(call, thing, its)
                began = time.perf_counter()
                if rows is None or not _are_same(rows, _rows(call, thing, its)):
                    continue
                text_us = (time.perf_counter() - began) * 1e6 / len(its)
                if kind == "batch" and not _are_same(rows[:1], _rows(call, thing, its[:1])):
                    continue  # padded to the batch
                named = _named(thing, partial(_rows, call, texts=its), rows)
                yield {"column": column, "kind": kind, "text_us": text_us, **named}, rows
                break


def _rows(call: Callable[[Any, list[str]], Any], thing: Any, texts: list[str]) -> Any:
    """Return the rows that a callable makes of texts as int64; None if it makes none of one length."""
    try:
        numpy = sys.modules["numpy"]
        made = call(thing, list(texts))
        array = as_array(made)
        array = numpy.stack([numpy.asarray(each) for each in made]) if array is None else array
        is_rows = array.ndim == 2 and len(array) == len(texts) and array.shape[1] and array.dtype.kind in "iu"
        return array.astype("int64") if is_rows and array.min() >= 0 else None
    except Exception:  # of the user's own code, which takes no such text
        return None


def _are_same(one: Any, other: Any) -> bool:
    return other is not None and one.shape == other.shape and bool((one == other).all())


def _named(thing: Any, make: Callable[[Any], Any], rows: Any) -> dict[str, Any]:
    """Return the module and name to import a callable by (empty if none gives the same), and a class's arguments."""
    kind = _kind_of(thing)
    found = {"called": kind.__qualname__, "module": kind.__module__, "name": "", "arguments": None, "folder": ""}
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    if module is None or file is None or kind.__module__ == "__main__":
        return found
    path = Path(file).absolute()
    above = kind.__module__.count(".") + (path.name == "__init__.py")
    found["folder"] = str(path.parents[above])
    own = vars(module)
    name = next((name for name, value in list(own.items()) if value is thing), None)
    if name is not None:
        return {**found, "name": name}
    is_importable = own.get(kind.__qualname__) is kind
    if kind is thing or not is_importable:
        return found
    for arguments in ({}, _kept_arguments(thing)):
        try:
            is_same = _are_same(rows, make(kind(**arguments)))
        except Exception:  # it needs others
            continue
        if is_same:
            return {**found, "name": kind.__qualname__, "arguments": arguments}
    return found


def _kept_arguments(thing: Any) -> dict[str, Any]:
    """Return the arguments of an object's class that the object has as attributes of their names: text or numbers."""
    try:
        names, own = list(inspect.signature(type(thing)).parameters), vars(thing)
    except (TypeError, ValueError):
        return {}
    kept = {name: own[name] for name in names if name in own}
    return {name: value for name, value in kept.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (str, int, bool) or (type(value) is float and math.isfinite(value))
