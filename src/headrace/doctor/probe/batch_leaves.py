"""Leaves of a nested batch: path, kind, shape, dtype, and range of values."""

from __future__ import annotations

import math
import sys
from collections import UserDict
from itertools import islice
from typing import Any

from .described_values import class_name

Leaf = tuple[str, str, "list[int] | None", "str | None", Any, Any]
"""Path, kind, shape, dtype, minimum and maximum: `OutputLeaf` of the session."""
MOST_LEAVES = 64
MOST_LEVELS = 8
LONG_LIST = 16
"""Length above which only the first elements of a list become leaves."""
FIRST = 3
MOST_RANGE_BYTES = 32 << 20
"""Size up to which the range covers a whole array; of a larger array, only the first rows are scanned."""


def leaves_of(value: Any, with_ranges: bool = True) -> list[Leaf]:
    """Return the leaves of a nested value, at most `MOST_LEAVES`."""
    leaves: list[Leaf] = []
    waiting: list[tuple[str, Any, int]] = [("", value, 0)]
    while waiting and len(leaves) < MOST_LEAVES:
        path, one, level = waiting.pop()
        inner = _inner(one) if level < MOST_LEVELS else None
        if inner is None:
            leaves.append((path, *leaf_of(one, with_ranges)))
            continue
        if len(inner) > LONG_LIST and isinstance(one, (list, tuple)):
            leaves.append((path, type(one).__name__, [len(inner)], None, None, None))
            inner = inner[:FIRST]
        waiting += [(f"{path}.{key}" if path else key, element, level + 1) for key, element in reversed(inner)]
    return leaves


def _inner(value: Any) -> list[tuple[str, Any]] | None:
    """Return the parts of a container by key or position, or None if `value` is empty or no container."""
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


def leaf_of(value: Any, with_range: bool = True) -> tuple[str, list[int] | None, str | None, Any, Any]:
    """Describe one value in the form of `Leaf`. Objects of other classes are named by their class."""
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
    """Return a number that JSON can hold: 0 or 1 for a boolean, None if the number is not finite."""
    if type(number) is bool:
        return int(number)
    if type(number) is int and not -(1 << 63) <= number < 1 << 63:
        return float(number)
    return number if math.isfinite(number) else None
