"""Values of the user's program as JSON: numbers, texts, arrays, tables, and what libraries know of their own objects.

Only numpy, torch, pandas, pyarrow and Pillow are asked by their own properties.
"""

from __future__ import annotations

import math
import sys
from itertools import islice
from typing import Any

MOST_ELEMENTS = 64
"""Of a container or an array that is written whole; of a longer one `FIRST` are."""
FIRST = 3
MOST_TEXT = 200
_BIGGEST = 1 << 63
_NUMBERS = "biuf"
"""Kinds of numpy's dtypes that are written by value."""
_TABLES = ("pandas.", "pyarrow.")


def class_name(kind: type) -> str:
    """Return module and qualified name of a class."""
    return f"{type.__getattribute__(kind, '__module__')}.{type.__getattribute__(kind, '__qualname__')}"


def of_library(thing: Any, kind: type) -> Any:
    """Describe what a library knows better than its attributes tell; None of anything else."""
    name = class_name(kind)
    if name.startswith("pathlib."):
        return {"path": text_facts(str(thing))}
    if name == "builtins.range":
        return {"range": [thing.start, thing.stop, thing.step]}
    if name.startswith(_TABLES):
        return _table(thing, name)
    numpy, torch, image = (sys.modules.get(module) for module in ("numpy", "torch", "PIL.Image"))
    if numpy is not None:
        if issubclass(kind, numpy.generic):
            return plain(thing.item())
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


def _table(thing: Any, name: str) -> Any:
    """Describe a table of pandas or pyarrow by its rows and columns; None of what is none."""
    if name.endswith("DataFrame"):
        columns = [key_text(column) for column in islice(thing.columns, MOST_ELEMENTS)]
        return {"class": name, "rows": int(thing.shape[0]), "columns": columns}
    if name.endswith(".Series"):
        return {"class": name, "rows": int(thing.shape[0]), "columns": [key_text(thing.name)]}
    if name in ("pyarrow.lib.Table", "pyarrow.lib.RecordBatch"):
        return {"class": name, "rows": thing.num_rows, "columns": thing.schema.names[:MOST_ELEMENTS]}
    return None


def array_facts(thing: Any) -> dict[str, Any]:
    """Describe a numpy array or a tensor: its shape and dtype, and the values of a small one."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None and issubclass(type(thing), numpy.ndarray):
        found: dict[str, Any] = {"array": "numpy", "shape": list(thing.shape), "dtype": thing.dtype.name}
        if thing.size <= MOST_ELEMENTS and thing.dtype.kind in _NUMBERS:
            found["values"] = [plain(value) for value in numpy.ndarray.ravel(thing).tolist()]
        return found
    assert torch is not None
    with torch._C.DisableTorchFunctionSubclass():
        found = {"array": "torch", "shape": list(thing.shape), "dtype": str(thing.dtype).rpartition(".")[2]}
        is_plain = type(thing) in (torch.Tensor, torch.nn.Parameter) and thing.device.type == "cpu"
        if is_plain and thing.numel() <= MOST_ELEMENTS and not thing.is_complex():
            found["values"] = [plain(value) for value in thing.detach().reshape(-1).tolist()]
    return found


def plain(value: Any) -> Any:
    """Return what JSON can hold of None, a number or a text."""
    if type(value) is str:
        return text_facts(value)
    if type(value) is float and not math.isfinite(value):
        return {"float": repr(value)}
    if type(value) is int and not -_BIGGEST <= value < _BIGGEST:
        return {"int": hex(value)[:MOST_TEXT]}
    return value


def text_facts(text: str) -> Any:
    return text if len(text) <= MOST_TEXT else {"text": len(text), "first": text[:MOST_TEXT]}


def key_text(key: Any) -> str:
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
