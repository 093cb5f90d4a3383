"""What a batch weighs and how it is shaped, found in a few microseconds."""

from __future__ import annotations

from typing import Any

MOST_LEAVES = 32
MOST_DEPTH = 4

Shape = tuple[tuple[Any, Any], ...]
"""dtype and shape of each tensor or array, in the order of the batch."""


def bytes_and_shape(batch: Any) -> tuple[int | None, Shape | None]:
    """Of the tensors and arrays in a batch: nested dicts, sequences and objects, up to 32 tensors. None and None where
    there is none."""
    leaves: list[Any] = []
    _collect(batch, leaves, MOST_DEPTH)
    if not leaves:
        return None, None
    return sum([leaf.nbytes for leaf in leaves]), tuple([(leaf.dtype, tuple(leaf.shape)) for leaf in leaves])


def text(shape: Shape) -> str:
    """Such as `float32[32,3,224,224] int64[32]`."""
    return " ".join(f"{str(dtype).rpartition('.')[2]}[{','.join(map(str, sizes))}]" for dtype, sizes in shape)


def _collect(value: Any, leaves: list[Any], depth: int) -> None:
    if len(leaves) >= MOST_LEAVES:
        return
    if hasattr(value, "nbytes") and hasattr(value, "shape"):
        leaves.append(value)
    elif depth and not isinstance(value, (str, bytes, int, float)):
        for inner in _parts(value):
            _collect(inner, leaves, depth - 1)


def _parts(value: Any) -> Any:
    if isinstance(value, dict):
        return list(value.values())[:MOST_LEAVES]
    if isinstance(value, (list, tuple)):
        return value[:MOST_LEAVES]
    data = getattr(value, "data", None)  # UserDict, as BatchEncoding is one
    return list((data if isinstance(data, dict) else getattr(value, "__dict__", {})).values())[:MOST_LEAVES]
