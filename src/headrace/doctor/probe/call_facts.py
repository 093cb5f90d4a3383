"""Facts about a library's call, from its arguments and its result: what is read, decoded, and with which parameters.

Each function here is asked only for samples that are looked at. What is large is described by its shape.
"""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections import UserDict
from functools import lru_cache
from itertools import islice
from types import FunctionType
from typing import Any

from .described_objects import ObjectDescriber
from .described_values import class_name

Facts = dict[str, Any]
Leaf = tuple[str, str, "list[int] | None", "str | None", Any, Any]
"""Path, kind, shape, dtype, and the least and greatest number: `OutputLeaf` of the session."""
MOST_CHARS = 3000
"""Of what describes one call."""
MOST_LEAVES = 64
MOST_LEVELS = 8
LONG_LIST = 16
"""Elements of a list of which only the first ones are leaves."""
FIRST = 3
MOST_RANGE_BYTES = 32 << 20
"""Of an array whose range is looked up; of a larger one only its first rows are."""
_OPENCV_NAMES = {"imread": ("path", "flags"), "imdecode": ("buffer", "flags"), "cvtColor": ("image", "code")}
_OPENCV_RESIZE = ("image", "size", "dst", "fx", "fy", "interpolation")
_OPENCV_SPELLINGS = {"dsize": "size", "src": "image", "buf": "buffer", "filename": "path"}


def facts_before(stage: str, function: Any, subject: Any, args: tuple[Any, ...], kwargs: Facts) -> Facts | None:
    """Return what is known of a call before it is made; None of one that is nothing to tell.

    `stage` is `category:label`, `subject` the object that is called, of calls that are known by their class.
    """
    category, _, label = stage.partition(":")
    library, _, name = label.partition(" ")
    if category == "call":
        return {"function": label, **_given(args, kwargs)}
    if category == "collate":
        return {"samples": len(args[0]) if args and type(args[0]) is list else None}
    if library == "Pillow":
        return _pillow(name, function, args, kwargs)
    if library == "OpenCV":
        return _opencv(name, args, kwargs)
    if label == "zipfile directory":
        return _path(args[1:], kwargs)
    if library in ("tarfile", "zipfile", "IndexedTar", "IndexedZip"):
        return _archive(library, args)
    if library == "tokenizers":
        return {"class": class_name(type(args[0])), **_texts(args[1:], kwargs), **_truncation(args[0])}
    if label == "h5py open":
        return _path(args, kwargs)
    if library == "h5py" and name == "":
        return _hdf5(args)
    if library in ("file", "numpy", "imageio", "torch.load") or name in ("read_image", "read_file", "read_video"):
        return {**_path(args, kwargs), **_given(args[1:], kwargs)}
    if subject is not None:
        return _of_subject(subject, args, kwargs)
    return {"function": _function_name(function), **_given(args, kwargs)}


def facts_after(stage: str, result: Any) -> Facts:
    """Return what its result says: `gives` is kind, shape and dtype, `value` a number."""
    label = stage.partition(":")[2]
    if label in ("Pillow load", "tarfile headers") or stage.startswith("collate:"):
        return {}
    if label == "Pillow open":
        return _image_facts(result)
    if label in ("tarfile member", "IndexedTar"):
        size = getattr(getattr(result, "raw", result), "size", None)
        return {"bytes": size} if type(size) is int else {}
    leaves = leaves_of(result, with_ranges=False)
    if len(leaves) == 1:
        if type(result) in (bool, int, float):
            return {"value": leaves[0][4]}
        return {"gives": list(leaves[0][1:4])}
    return {"gives": [[leaf[0], *leaf[1:4]] for leaf in leaves[:LONG_LIST]]} if leaves else {}


def _given(args: tuple[Any, ...], kwargs: Facts) -> Facts:
    """Describe arguments by position and name, those that are there."""
    found = ObjectDescriber(MOST_CHARS).describe({"arguments": args, "keywords": kwargs})
    keywords = found["keywords"].get("dict") or {}
    return {**({"arguments": found["arguments"]} if args else {}), **({"keywords": keywords} if kwargs else {})}


def _described(thing: Any) -> Any:
    return ObjectDescriber(MOST_CHARS).describe({"it": thing})["it"]


def _value(thing: Any) -> Any:
    """Describe an argument; an enum by its value, which is what the library goes by."""
    found = _described(thing)
    return found.get("value") if isinstance(found, dict) and "enum" in found else found


def _function_name(function: Any) -> str:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return f"{getattr(function, '__module__', None)}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def _path_text(thing: Any) -> str | None:
    return os.fsdecode(thing) if isinstance(thing, (str, bytes, os.PathLike)) else None


def _path(args: tuple[Any, ...], kwargs: Facts) -> Facts:
    """Return the path that a call opens: its first argument, or the name of the file that is that."""
    thing = args[0] if args else next(iter(kwargs.values()), None)
    path = _path_text(thing)
    if path is None:
        path = _path_text(getattr(thing, "name", None)) if type(thing).__module__ in ("_io", "io") else None
    return {} if path is None else {"path": path}


# Images.


def _image_facts(image: Any) -> Facts:
    """Describe a Pillow image; `path` where it was opened by one."""
    found = {"format": getattr(image, "format", None), "mode": image.mode, "size": list(image.size)}
    path = getattr(image, "filename", None) or getattr(getattr(image, "fp", None), "name", None)
    text = _path_text(path)
    return {**found, "path": text} if text else found


@lru_cache(64)
def _signature(function: FunctionType) -> inspect.Signature:
    return inspect.signature(function)


def _pillow(name: str, function: Any, args: tuple[Any, ...], kwargs: Facts) -> Facts | None:
    if name == "open":
        return _path(args, kwargs)
    image = args[0]
    if name == "load":
        return _image_facts(image) if getattr(image, "tile", None) else None  # else its pixels are there
    bound = dict(_signature(function).bind(*args, **kwargs).arguments)
    bound.pop("self", None)
    facts: Facts = {key: _value(value) for key, value in bound.items()}
    if name == "convert":
        facts["from"] = image.mode
    return {**facts, "image": {"mode": image.mode, "size": list(image.size)}}


def _opencv(name: str, args: tuple[Any, ...], kwargs: Facts) -> Facts:
    names = _OPENCV_RESIZE if name == "resize" else _OPENCV_NAMES.get(name, ())
    given = dict(zip(names, args))
    given.update((_OPENCV_SPELLINGS.get(key, key), value) for key, value in kwargs.items())
    rest = args[len(names) :]
    facts = {key: _value(value) for key, value in given.items() if value is not None}
    if "path" in given:
        facts["path"] = _path_text(given["path"])
    return {**facts, **({"arguments": _described(rest)} if rest else {})}


# Files and archives.


def _archive(library: str, args: tuple[Any, ...]) -> Facts:
    archive, member = args[0] if args else None, args[1] if len(args) > 1 else None
    if isinstance(archive, (str, bytes, os.PathLike)):  # what is opened
        return {"path": _path_text(archive)}
    path = _path_text(getattr(archive, "filename" if library == "zipfile" else "name", None))
    stream: Any = archive
    while not path and hasattr(stream, "fileobj"):  # of a stream, the name of the file that it reads
        stream = stream.fileobj
        path = _path_text(getattr(stream, "name", None))
    name = getattr(member, "name", None) or getattr(member, "filename", None) or member
    if type(name) is not str:
        return {"archive": path or _path_text(member)}
    facts: Facts = {"archive": path, "member": name}
    if library == "zipfile":
        info = getattr(archive, "NameToInfo", {}).get(name)
        facts["bytes"] = getattr(info, "file_size", None)
    return facts


def _hdf5(args: tuple[Any, ...]) -> Facts:
    data = args[0]
    facts = {"archive": _path_text(data.file.filename), "member": data.name, "shape": list(data.shape)}
    return {**facts, "dtype": str(data.dtype), "index": _described(args[1] if len(args) > 1 else None)}


# Texts and transforms.


def _texts(args: tuple[Any, ...], kwargs: Facts) -> Facts:
    """Describe what a tokeniser is given: how many texts, the first of them, and its options."""
    texts = args[0] if args else kwargs.get("text", kwargs.get("sequence", kwargs.get("input")))
    facts: Facts = {"texts": 1, "first": _described(texts)}
    if isinstance(texts, (list, tuple)):
        facts = {"texts": len(texts), "first": _described(texts[0]) if texts else None}
    options = {key: value for key, value in kwargs.items() if value is not texts}
    return {**facts, **{key: _value(value) for key, value in options.items()}}


def _truncation(tokenizer: Any) -> Facts:
    """Describe what a tokeniser of tokenizers does without being told."""
    return {"padding": _described(tokenizer.padding), "truncation": _described(tokenizer.truncation)}


def _of_subject(subject: Any, args: tuple[Any, ...], kwargs: Facts) -> Facts:
    """Describe a call of an object that is known by its class: a transform or a tokeniser."""
    if type(subject) is FunctionType:
        return {"function": _function_name(subject), "described": _described(subject)}
    kind = class_name(type(subject))
    if any(base.__name__ == "PreTrainedTokenizerBase" for base in type(subject).__mro__):
        name = getattr(subject, "name_or_path", None)
        return {"class": kind, "name_or_path": _described(name), **_texts(args, kwargs)}
    return {"class": kind, "described": _described(subject)}


# What comes out.


def leaves_of(value: Any, with_ranges: bool = True) -> list[Leaf]:
    """List the values of a nested result, at most `MOST_LEAVES`."""
    leaves: list[Leaf] = []
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting and len(leaves) < MOST_LEAVES:
        path, one, level = waiting.pop()
        inner = _inner(one) if level < MOST_LEVELS else None
        if inner is None:
            leaves.append((path, *_leaf(one, with_ranges)))
            continue
        if len(inner) > LONG_LIST and isinstance(one, (list, tuple)):
            leaves.append((path, type(one).__name__, [len(inner)], None, None, None))
            inner = inner[:FIRST]
        waiting += [(f"{path}.{key}" if path else key, element, level + 1) for key, element in reversed(inner)]
    return leaves


def _inner(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a container by their keys or positions; None of anything else, and of an empty one."""
    kind = type(value)
    if issubclass(kind, UserDict):
        value = vars(value).get("data")
        kind = type(value)
    if issubclass(kind, dict):
        items = islice(dict.items(value), MOST_LEAVES)
        return [(str(key) if type(key) in (str, int) else "?", one) for key, one in items] or None
    for base in (list, tuple):
        if issubclass(kind, base):
            return [(str(number), one) for number, one in enumerate(base.__iter__(value))] or None
    return None


def _leaf(value: Any, with_range: bool) -> tuple[str, list[int] | None, str | None, Any, Any]:
    kind = type(value)
    if kind in (bool, int, float):
        number = _finite(value)
        return kind.__name__, None, None, number, number
    if kind in (str, bytes):
        return kind.__name__, [len(value)], None, None, None
    if value is None:
        return "None", None, None, None, None
    torch, numpy, image = (sys.modules.get(name) for name in ("torch", "numpy", "PIL.Image"))
    if torch is not None and issubclass(kind, torch.Tensor):
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            dtype = str(value.dtype).rpartition(".")[2]
            low, high = _tensor_range(torch, value) if with_range else (None, None)
            return "tensor", list(value.shape), dtype, low, high
    if numpy is not None and issubclass(kind, (numpy.ndarray, numpy.generic)):
        low, high = _array_range(numpy, value) if with_range else (None, None)
        return "ndarray", list(value.shape), value.dtype.name, low, high
    if image is not None and issubclass(kind, image.Image):
        return "PIL", [value.height, value.width], value.mode, None, None
    return class_name(kind), None, None, None, None


def _tensor_range(torch: Any, tensor: Any) -> tuple[Any, Any]:
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided or tensor.is_complex() or not tensor.numel():
        return None, None
    rows = _rows(tensor.shape, tensor.element_size())
    low, high = torch.aminmax(tensor.detach()[:rows] if tensor.dim() else tensor.detach())
    return _finite(low.item()), _finite(high.item())


def _array_range(numpy: Any, array: Any) -> tuple[Any, Any]:
    if array.dtype.kind not in "biuf" or not array.size:
        return None, None
    part = array[: _rows(array.shape, array.itemsize)] if array.ndim else array
    return _finite(numpy.min(part).item()), _finite(numpy.max(part).item())


def _rows(shape: Any, item_bytes: int) -> int:
    row_bytes: int = item_bytes * math.prod(shape[1:])
    return max(1, MOST_RANGE_BYTES // max(1, row_bytes))


def _finite(number: Any) -> Any:
    """Return a number that JSON holds as one: of a boolean 0 or 1, None of what is not finite."""
    if type(number) is bool:
        return int(number)
    if type(number) is int and not -(1 << 63) <= number < 1 << 63:
        return float(number)
    return number if math.isfinite(number) else None
