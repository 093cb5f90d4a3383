"""How much of a batch of sequences is padding, looked at in a few of the batches."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..probe import Probe

EVERY = 8
"""Batches of a pass from one look to the next."""
MOST_LOOKS = 64
MOST_TOKENS = 1 << 20
"""In one batch: to count more takes too long in the training thread."""
LEAST_WIDTH = 8
MOST_DEPTH = 2
LEAST_BYTES = 4
"""Of a token: bytes and shorter numbers are pixels and sound."""
MOST_INSIDE = 0.1
"""Share of the tokens before the padding that may be of its value."""
MASK = "attention_mask"

Counted = tuple[int, int, int, int]
"""Rows, width, tokens that are no padding, and the most of these in a row."""


class Padding:
    """Looks at the batches that a process receives until it has seen enough of them."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._looks = 0

    def look(self, pass_: int, index: int, batch: Any) -> None:
        if index % EVERY or self._looks >= MOST_LOOKS:
            return
        begun = time.monotonic_ns()
        self._looks += 1
        try:
            found = counted(batch)
        except Exception:  # an object of the user's that is not what it seems
            found = None
        if found is not None:
            self._probe.evidence.write(("padding", pass_, index, *found))
        self._probe.training.costs.since(begun)


def counted(batch: Any) -> Counted | None:
    """Of the attention mask, where the batch has one, else of the first matrix of whole numbers in it, whose padding is
    the value that most of its rows end with. None where there is neither."""
    matrices = list(_matrices("", batch, MOST_DEPTH))
    mask = next((matrix for name, matrix in matrices if name == MASK), None)
    if mask is not None:
        return _counted(mask != 0)
    tokens = next((matrix for _, matrix in matrices if matrix.dtype.itemsize >= LEAST_BYTES), None)
    return None if tokens is None else _of_tokens(tokens)


def _of_tokens(tokens: Any) -> Counted | None:
    """None for a matrix whose last value lies all over it, as the 0 of labels does that are 1 here and there."""
    import numpy

    values, counts = numpy.unique(tokens[:, -1], return_counts=True)
    padding = values[counts.argmax()]
    differs = tokens[:, ::-1] != padding
    run = numpy.where(differs.any(axis=1), differs.argmax(axis=1), tokens.shape[1])
    run[run == 1] = 0  # one such token alone ends a sentence
    is_kept = numpy.arange(tokens.shape[1]) < (tokens.shape[1] - run)[:, None]
    inside = int((is_kept & (tokens == padding)).sum())
    return None if inside > MOST_INSIDE * is_kept.sum() else _counted(is_kept)


def _counted(is_kept: Any) -> Counted | None:
    """None where nothing is kept."""
    lengths = is_kept.sum(axis=1)
    if not lengths.any():
        return None
    return int(is_kept.shape[0]), int(is_kept.shape[1]), int(lengths.sum()), int(lengths.max())


def _matrices(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Arrays of whole numbers in two dimensions with the keys that they have, found as signature.py finds its leaves:
    without a call of the user's code."""
    kind = type(value)
    array = _array(value, kind)
    if array is not None:
        if array.ndim == 2 and array.dtype.kind in "iub" and array.shape[1] >= LEAST_WIDTH and array.size:
            yield name, array
    elif depth:
        for key, inner in _items(value, kind.__mro__):
            yield from _matrices(key, inner, depth - 1)


def _array(value: Any, kind: type) -> Any:
    """A tensor's memory, or an array itself; None for anything else, on another device, or too large."""
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if torch is not None and kind is torch.Tensor:
        is_near = value.device.type == "cpu" and value.layout is torch.strided and not value.is_floating_point()
        return value.numpy() if is_near and value.numel() <= MOST_TOKENS else None
    return value if kind is numpy.ndarray and value.size <= MOST_TOKENS else None


def _items(value: Any, bases: tuple[type, ...]) -> list[tuple[str, Any]]:
    if dict in bases:
        return list(dict.items(value))
    for sequence in (list, tuple):
        if sequence in bases:
            return [("", inner) for inner in sequence.__getitem__(value, slice(8))]
    try:
        data = object.__getattribute__(value, "__dict__").get("data")
    except AttributeError:  # it has slots
        return []
    return list(data.items()) if type(data) is dict else []
