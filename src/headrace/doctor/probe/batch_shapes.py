"""Sizes and shapes of batches, and their padding."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import Any, Callable

from .evidence_file import EvidenceFile
from .overhead import TrainingCost

MOST_SIZED = 32
MOST_DEPTH = 4
MOST_SHAPES = 1000
"""Limit of distinct shapes: a run with a new shape in each batch must not fill the evidence with names."""
EVERY = 8
"""Batches of a pass between two padding checks."""
MOST_LOOKS = 64
MOST_TOKENS = 1 << 20
"""Maximum tokens per batch. Counting more takes too long in the training thread."""
LEAST_WIDTH = 8
MOST_MATRIX_DEPTH = 2
MOST_MATRICES = 8
"""Maximum number of items searched for a matrix."""
LEAST_BYTES = 4
"""Minimum bytes of a token. Shorter numbers are pixels or audio."""
MOST_INSIDE = 0.1
"""Maximum share of padding values among the tokens before the padding."""
MASK = "attention_mask"

Shape = tuple[tuple[Any, Any], ...]
"""Dtype and shape of each tensor or array, in batch order."""
SizedLeaf = tuple[int, Any, tuple[int, ...]]
"""Bytes, dtype and shape."""
Counted = tuple[int, int, int, int]
"""Rows, width, tokens that are no padding, and the longest row of such tokens."""
_PLAIN = (str, bytes, int, float, bool, type(None))


class BatchShapes:
    """Shapes seen so far, by their numbers among the evidence's names."""

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self._name = name
        self._numbers: dict[Shape, int] = {}

    def of(self, batch: Any) -> tuple[int | None, int | None]:
        """Return the bytes of a batch and the number of its shape, each None if unknown."""
        try:
            size, shape = bytes_and_shape(batch)
        except Exception:  # a tensor without a shape (nested), or a user object that raises
            return None, None
        if shape is None:
            return None, None
        number = self._numbers.get(shape)
        if number is None and len(self._numbers) < MOST_SHAPES:
            # For example `float32[32,3,224,224] int64[32]`, and `float32[8,4] | float32[6,4]` for two devices.
            texts = [f"{str(dtype).rpartition('.')[2]}[{','.join(map(str, sizes))}]" for dtype, sizes in shape]
            parts = _device_parts(batch)
            each = len(texts) // parts if len(texts) % parts == 0 else len(texts)
            parts_texts = [" ".join(texts[begin : begin + each]) for begin in range(0, len(texts), each)]
            number = self._numbers[shape] = self._name(" | ".join(parts_texts))
        return size, number


def _device_parts(batch: Any) -> int:
    """Return the length of a list of dicts with the same keys, such as a part for each device; 1 for other batches."""
    if type(batch) not in (list, tuple) or not all(type(one) is dict for one in batch):
        return 1
    return max(len(batch), 1) if all(one.keys() == batch[0].keys() for one in batch) else 1


def bytes_and_shape(batch: Any) -> tuple[int | None, Shape | None]:
    """Return total bytes and shape of the tensors and numpy arrays in a batch, or None and None if there are none.

    Dicts, sequences and objects are searched, up to 32 leaves.
    """
    leaves: list[SizedLeaf] = []
    _collect(batch, leaves, MOST_DEPTH)
    if not leaves:
        return None, None
    return sum([leaf[0] for leaf in leaves]), tuple([leaf[1:] for leaf in leaves])


def _collect(value: Any, leaves: list[SizedLeaf], depth: int) -> None:
    kind = type(value)
    if kind in _PLAIN or len(leaves) >= MOST_SIZED:
        return
    leaf = _leaf(value, kind)
    if leaf is not None:
        leaves.append(leaf)
    elif depth:
        for _, inner in _items(value, MOST_SIZED, has_attributes=True):
            _collect(inner, leaves, depth - 1)


def _leaf(value: Any, kind: type) -> SizedLeaf | None:
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


def _items(value: Any, most: int, *, has_attributes: bool = False) -> list[tuple[str, Any]]:
    """List the items of a dict or sequence with their keys, or an object's attributes if `has_attributes`.

    A UserDict such as BatchEncoding counts as its dict.
    """
    bases = type(value).__mro__
    if dict in bases:
        return list(dict.items(value))[:most]
    for sequence in (list, tuple):
        if sequence in bases:
            return [("", inner) for inner in sequence.__getitem__(value, slice(most))]
    try:
        attributes: dict[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:  # it has slots
        return []
    data = attributes.get("data")
    if type(data) is not dict and not has_attributes:
        return []
    return list((data if type(data) is dict else attributes).items())[:most]


class PaddingLooks:
    """Padding checks of the batches that a process receives, up to a limit."""

    def __init__(self, evidence: EvidenceFile, costs: TrainingCost) -> None:
        self._evidence = evidence
        self._costs = costs
        self._looks = 0

    def look(self, pass_: int, index: int, batch: Any) -> None:
        if index % EVERY or self._looks >= MOST_LOOKS:
            return
        begun = time.monotonic_ns()
        self._looks += 1
        try:
            found = counted(batch)
        except Exception:  # a user object that is not what it seems
            found = None
        if found is not None:
            self._evidence.write(("padding", pass_, index, *found))
        self._costs.since(begun)


def counted(batch: Any) -> Counted | None:
    """Count a batch's tokens and padding by its attention mask, if it has one.

    Otherwise use its first integer matrix, in which padding is the value that most rows end with. Return None if there
    is neither.
    """
    matrices = list(_matrices("", batch, MOST_MATRIX_DEPTH))
    mask = next((matrix for name, matrix in matrices if name == MASK), None)
    if mask is not None:
        return _counted(mask != 0)
    tokens = next((matrix for _, matrix in matrices if matrix.dtype.itemsize >= LEAST_BYTES), None)
    return None if tokens is None else _of_tokens(tokens)


def _of_tokens(tokens: Any) -> Counted | None:
    """Return None for a matrix with its last value all over it, such as the 0 of sparse 0/1 labels."""
    import numpy

    values, counts = numpy.unique(tokens[:, -1], return_counts=True)
    padding = values[counts.argmax()]
    differs = tokens[:, ::-1] != padding
    run = numpy.where(differs.any(axis=1), differs.argmax(axis=1), tokens.shape[1])
    run[run == 1] = 0  # a single such token ends a sentence
    is_filled = numpy.arange(tokens.shape[1]) < (tokens.shape[1] - run)[:, None]
    inside = int((is_filled & (tokens == padding)).sum())
    return None if inside > MOST_INSIDE * is_filled.sum() else _counted(is_filled)


def _counted(is_filled: Any) -> Counted | None:
    lengths = is_filled.sum(axis=1)
    if not lengths.any():
        return None
    return int(is_filled.shape[0]), int(is_filled.shape[1]), int(lengths.sum()), int(lengths.max())


def _matrices(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield 2D integer arrays with their keys."""
    kind = type(value)
    array = _array(value, kind)
    if array is not None:
        if array.ndim == 2 and array.dtype.kind in "iub" and array.shape[1] >= LEAST_WIDTH and array.size:
            yield name, array
    elif depth:
        for key, inner in _items(value, MOST_MATRICES):
            yield from _matrices(key, inner, depth - 1)


def _array(value: Any, kind: type) -> Any:
    """Return a tensor as an array, or an array itself; None for other types, other devices, or too many elements."""
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return None
    if torch is not None and kind is torch.Tensor:
        is_near = value.device.type == "cpu" and value.layout is torch.strided and not value.is_floating_point()
        return value.numpy() if is_near and value.numel() <= MOST_TOKENS else None
    return value if kind is numpy.ndarray and value.size <= MOST_TOKENS else None
