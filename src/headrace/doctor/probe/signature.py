"""What a batch weighs and how it is shaped, found in a few microseconds.

A batch is the user's object: no property, `__getattr__`, `__getitem__` or `__torch_function__` of theirs is run by
looking at it.
"""

from __future__ import annotations

import sys
from typing import Any

MOST_LEAVES = 32
MOST_DEPTH = 4

Shape = tuple[tuple[Any, Any], ...]
"""dtype and shape of each tensor or array, in the order of the batch."""


Leaf = tuple[int, Any, tuple[int, ...]]
"""Bytes, dtype and shape."""
_PLAIN = (str, bytes, int, float, bool, type(None))


def bytes_and_shape(batch: Any) -> tuple[int | None, Shape | None]:
    """Of the tensors and numpy arrays in a batch: nested dicts, sequences and objects, up to 32 of them. None and None
    where there is none."""
    leaves: list[Leaf] = []
    _collect(batch, leaves, MOST_DEPTH)
    if not leaves:
        return None, None
    return sum([leaf[0] for leaf in leaves]), tuple([leaf[1:] for leaf in leaves])


def text(shape: Shape) -> str:
    """Such as `float32[32,3,224,224] int64[32]`."""
    return " ".join(f"{str(dtype).rpartition('.')[2]}[{','.join(map(str, sizes))}]" for dtype, sizes in shape)


def _collect(value: Any, leaves: list[Leaf], depth: int) -> None:
    kind = type(value)
    if kind in _PLAIN or len(leaves) >= MOST_LEAVES:
        return
    leaf = _leaf(value, kind)
    if leaf is not None:
        leaves.append(leaf)
    elif depth:
        for inner in _parts(value, kind.__mro__):
            _collect(inner, leaves, depth - 1)


def _leaf(value: Any, kind: type) -> Leaf | None:
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.Tensor in kind.__mro__:
        if kind is torch.Tensor:
            return value.nbytes, value.dtype, tuple(value.shape)
        with torch._C.DisableTorchFunctionSubclass():
            return value.nbytes, value.dtype, tuple(value.shape)
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None and numpy.ndarray in kind.__mro__:
        array = numpy.ndarray
        return array.nbytes.__get__(value), array.dtype.__get__(value), array.shape.__get__(value)
    return None


def _parts(value: Any, bases: tuple[type, ...]) -> list[Any]:
    if dict in bases:
        return list(dict.values(value))[:MOST_LEAVES]
    for sequence in (list, tuple):
        if sequence in bases:
            return list(sequence.__getitem__(value, slice(MOST_LEAVES)))
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots
        return []
    data = attributes.get("data")  # UserDict, as BatchEncoding is one
    return list((data if type(data) is dict else attributes).values())[:MOST_LEAVES]
