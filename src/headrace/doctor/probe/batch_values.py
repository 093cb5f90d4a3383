"""Values of a nested batch: its leaves with their paths, and arrays of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any

MOST_LEAVES = 64
MOST_DEPTH = 6
_ODD = object()
"""Placeholder for a value under a key that is no text."""


def parts_of(value: Any, path: list[Any]) -> Iterator[tuple[list[Any], Any]]:
    """Yield the leaves of a nested batch in order, with their paths.

    A value under a key that no Loader batch can have yields its path and `_ODD`.
    """
    members = _members(value) if len(path) < MOST_DEPTH else None
    if members is None:
        yield path, value
        return
    for key, one in members:
        if isinstance(key, str) or isinstance(value, (list, tuple)):
            yield from parts_of(one, [*path, key])
        else:
            yield [*path, repr(key)], _ODD


def _members(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the members of a dict, list or similar container by key or position; None for anything else."""
    if isinstance(value, (list, tuple)):
        return list(enumerate(value))
    try:
        if isinstance(value, dict) or (callable(value.keys) and callable(value.items)):
            return [(key, one) for key, one in islice(value.items(), MOST_LEAVES)]
    except Exception:  # a class without these, or a user class in which the names mean something else
        return None
    return None


def as_array(value: Any) -> Any:
    """Return a tensor, array or image as a numpy array; None for anything else."""
    torch, numpy, image = (sys.modules.get(name) for name in ("torch", "numpy", "PIL.Image"))
    if torch is not None and isinstance(value, torch.Tensor):
        plain = value.detach().as_subclass(torch.Tensor).cpu()
        return (plain.float() if plain.dtype is torch.bfloat16 else plain).numpy()
    if numpy is None:
        return None
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        array = numpy.asarray(value)
        return None if array.dtype.hasobject else array
    if image is not None and isinstance(value, image.Image):
        return numpy.asarray(value)
    return None
