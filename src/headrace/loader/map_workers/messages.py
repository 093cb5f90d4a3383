"""A batch's fields as a worker gets them: by their place in shared memory, or as they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace.loader.batch_memory import SharedBlocks
from headrace.loader.batch_values import Plain

IMMUTABLE = (bytes, str, int, float, bool, complex, type(None), np.generic)


class Blocks(Protocol):
    """The shared file as a worker sees it."""

    def fresh(self, offset: int, bytes: int) -> NDArray[np.uint8]:
        """A part of it, as an array that lives as long as something refers to it."""
        ...


class SentField(Protocol):
    """A field on its way to a worker."""

    @property
    def shared(self) -> bool:
        """Whether the parent sees what the worker writes to it."""
        ...

    def open(self, blocks: Blocks) -> Sequence[Any]:
        """The field, by rows."""
        ...


@dataclass(frozen=True)
class SharedArray:
    """An array or a tensor that lies in a block of the shared file."""

    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    tensor: str | None
    shared: bool = True

    def open(self, blocks: Blocks) -> Any:
        block = blocks.fresh(self.offset, self.nbytes)
        return Plain(np.ndarray(self.shape, self.dtype, block, 0, self.strides), self.tensor).restore()


@dataclass(frozen=True)
class SharedBytes:
    """Strings of bytes, one after the other in a block of the shared file."""

    offset: int
    ends: NDArray[np.int64]
    shared: bool = True

    def open(self, blocks: Blocks) -> Sequence[bytes]:
        return _Pieces(blocks.fresh(self.offset, int(self.ends[-1])), self.ends)


@dataclass(frozen=True)
class Copied:
    """Any other field: the rows themselves."""

    rows: Any
    shared: bool = False

    def open(self, blocks: Blocks) -> Any:
        return self.rows


class _Pieces(Sequence[bytes]):
    def __init__(self, block: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        self._block = block
        self._ends = ends

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, row: Any) -> Any:
        start = int(self._ends[row - 1]) if row else 0
        return self._block[start : int(self._ends[row])].tobytes()


def share(value: Any, memory: SharedBlocks) -> Any:
    """The field of a batch, in shared memory if it is an array: itself where it lies there, else a copy."""
    plain = Plain.of(value)
    if plain is None or plain.array.nbytes == 0 or memory.offset_of(plain.array) is not None:
        return value
    copy = memory.acquire(plain.array.nbytes).view(plain.array.dtype).reshape(plain.array.shape)
    np.copyto(copy, plain.array)
    return Plain(copy, plain.tensor).restore()


def send(value: Any, memory: SharedBlocks, keep: list[Any]) -> SentField:
    """Describes a field to all workers. What must live until they are done is put into `keep`."""
    plain = Plain.of(value)
    offset = None if plain is None else memory.offset_of(plain.array)
    if plain is not None and offset is not None:
        array = plain.array
        keep.append(value)
        return SharedArray(offset, array.nbytes, array.dtype.str, array.shape, array.strides, plain.tensor)
    if isinstance(value, list) and value and all(type(each) is bytes for each in value):
        return _send_bytes(value, memory, keep)
    return Copied(value)


def _send_bytes(values: list[bytes], memory: SharedBlocks, keep: list[Any]) -> SentField:
    joined = b"".join(values)
    if not joined:
        return Copied(values)
    block = memory.acquire(len(joined))
    block[:] = np.frombuffer(joined, np.uint8)
    keep.append(block)
    offset = memory.offset_of(block)
    assert offset is not None
    return SharedBytes(offset, np.cumsum([len(value) for value in values]))


def send_rows(value: Any, rows: Sequence[int]) -> SentField:
    """Some rows of a field, as copies, where there is no shared memory."""
    return Copied(type(value)(value[row] for row in rows) if isinstance(value, list) else value[list(rows)])
