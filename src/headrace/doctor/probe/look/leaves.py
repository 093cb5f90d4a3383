"""Leaves of a nested batch: one walk over them, and the shapes and the padding of a batch."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Callable

from ..evidence_file import EvidenceFile
from ..stages import TrainingCost

MOST_LEAVES = 64
"""Maximum number of leaves of a batch, and of members of a container, that are read."""
MOST_DEPTH = 6
MOST_SIZED, SIZED_DEPTH = 32, 4
MOST_SHAPES = 1000
"""Limit of distinct shapes: a run with a new shape in each batch must not fill the evidence with names."""
EVERY = 8
"""Batches of a pass between two padding checks."""
MOST_LOOKS = 64
MOST_TOKENS = 1 << 20
"""Maximum tokens per batch. Counting more takes too long in the training thread."""
LEAST_WIDTH = 8
MATRIX_DEPTH = 2
LEAST_BYTES = 4
"""Minimum bytes of a token. Shorter numbers are pixels or audio."""
MOST_INSIDE = 0.1
"""Maximum share of padding values among the tokens before the padding."""
MASK = "attention_mask"

Path = tuple[Any, ...]
"""Keys and positions from a batch to its leaf."""
Shape = tuple[tuple[Any, Any], ...]
"""Dtype and shape of each tensor or array, in batch order."""
SizedLeaf = tuple[int, Any, "tuple[int, ...]"]
"""Bytes, dtype and shape."""
Counted = tuple[int, int, int, int]
"""Rows, width, tokens that are no padding, and the longest row of such tokens."""
_PLAIN = (str, bytes, int, float, bool, type(None))


class OddKey(str):
    """Text of a dict's key that is no text, as no Loader batch has one."""

    __slots__ = ()


def leaves_of(value: Any, path: Path = (), depth: int = MOST_DEPTH) -> Iterator[tuple[Path, Any]]:
    """Yield the leaves of a nested batch in order, with paths. Mappings such as BatchEncoding are containers too."""
    members = None if not depth or type(value) in _PLAIN or _is_array(type(value)) else _members(value)
    if members is None:
        yield path, value
        return
    for key, inner in members:
        if type(inner) in _PLAIN:
            yield (*path, key), inner
        else:
            yield from leaves_of(inner, (*path, key), depth - 1)


def _is_array(kind: type) -> bool:
    """Return True for the type of a tensor or array, which is a leaf even if it has no size."""
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    bases = kind.__mro__
    return (torch is not None and torch.Tensor in bases) or (numpy is not None and numpy.ndarray in bases)


def _members(value: Any, has_attributes: bool = False) -> Iterable[tuple[Any, Any]] | None:
    """Return a container's members by key or position, or an object's attributes; None for anything else."""
    bases = type(value).__mro__
    for sequence in (list, tuple):
        if sequence in bases:
            return enumerate(sequence.__getitem__(value, slice(MOST_LEAVES)))
    try:
        if dict in bases:
            items = dict.items(value)
        elif issubclass(type(value), Mapping):
            items = value.items()
        elif has_attributes:
            items = object.__getattribute__(value, "__dict__").items()
        else:
            return None
        return [(key if isinstance(key, str) else OddKey(repr(key)), one) for key, one in islice(items, MOST_LEAVES)]
    except Exception:  # an object with slots, or a user class that raises
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
    """Return total bytes and shape of the first tensors and numpy arrays in a batch; None and None without any."""
    leaves: list[SizedLeaf] = []
    _collect(batch, leaves, SIZED_DEPTH)
    if not leaves:
        return None, None
    return sum([leaf[0] for leaf in leaves]), tuple([leaf[1:] for leaf in leaves])


def _collect(value: Any, leaves: list[SizedLeaf], depth: int) -> None:
    """Collect arrays in every step: `leaves_of` would take several times as long."""
    kind = type(value)
    if kind in _PLAIN or len(leaves) >= MOST_SIZED:
        return
    leaf = _sized(value, kind)
    if leaf is not None:
        leaves.append(leaf)
    elif depth:
        for _, inner in _members(value, has_attributes=True) or ():
            _collect(inner, leaves, depth - 1)


def _sized(value: Any, kind: type) -> SizedLeaf | None:
    """Return bytes, dtype and shape of a tensor or array; None for anything else. Runs no code of a subclass."""
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


class PaddingLooks:
    """Padding checks of the batches that a process receives, up to a limit."""

    def __init__(self, evidence: EvidenceFile, costs: TrainingCost) -> None:
        self._evidence, self._costs = evidence, costs
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
    """Count a batch's tokens and padding by its attention mask, else by the last values of an integer matrix."""
    leaves = islice(leaves_of(batch, depth=MATRIX_DEPTH), MOST_LEAVES)
    arrays = [(path, leaf) for path, leaf in leaves if type(leaf) not in _PLAIN]
    matrices = [(path, matrix) for path, leaf in arrays for matrix in _integer_matrix(leaf)]
    mask = next((matrix for path, matrix in matrices if path[-1:] == (MASK,)), None)
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


def _integer_matrix(value: Any) -> list[Any]:
    """Return a matrix of integers in host memory, that is no subclass's, as the only item; else an empty list."""
    torch: Any = sys.modules.get("torch")
    numpy: Any = sys.modules.get("numpy")
    if torch is not None and type(value) is torch.Tensor:
        is_near = value.device.type == "cpu" and value.layout is torch.strided and not value.is_floating_point()
        value = value.numpy() if is_near and value.numel() <= MOST_TOKENS else None
    if numpy is None or type(value) is not numpy.ndarray or not 0 < value.size <= MOST_TOKENS:
        return []
    is_matrix = value.ndim == 2 and value.dtype.kind in "iub" and value.shape[1] >= LEAST_WIDTH
    return [value] if is_matrix else []
