"""Messages between the loader and its workers: fields in shared memory, pickles, counters."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.loader.batch_memory import SharedBlocks
from headrace.loader.batch_values import PlainArray, RowLayout

IMMUTABLE = (bytes, str, int, float, bool, complex, type(None), np.generic)


Fresh: TypeAlias = Callable[[int, int], NDArray[np.uint8]]
"""Function that opens a block of the shared file, by offset and bytes, as an array with its own lifetime."""


@dataclass(frozen=True)
class SharedArray:
    """Array or tensor in a block of the shared file."""

    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    tensor: str | None
    shared: bool = True

    def open(self, fresh: Fresh) -> Any:
        block = fresh(self.offset, self.nbytes)
        return PlainArray(np.ndarray(self.shape, self.dtype, block, 0, self.strides), self.tensor).restore()


@dataclass(frozen=True)
class SharedBytes:
    """Strings of bytes, one after the other in a block of the shared file."""

    offset: int
    ends: NDArray[np.int64]
    shared: bool = True

    def open(self, fresh: Fresh) -> Sequence[bytes]:
        return _Pieces(fresh(self.offset, int(self.ends[-1])), self.ends)


@dataclass(frozen=True)
class Copied:
    """Any other field: the rows themselves."""

    rows: Any
    shared: bool = False

    def open(self, fresh: Fresh) -> Any:
        return self.rows


SentField: TypeAlias = SharedArray | SharedBytes | Copied
"""Field on its way to a worker. `shared`: the parent sees what the worker writes to it. `open` returns its rows."""


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
    """Move a field into shared memory if it is an array in other memory."""
    plain = PlainArray.of(value)
    if plain is None or plain.array.nbytes == 0 or memory.offset_of(plain.array) is not None:
        return value
    copy = memory.acquire(plain.array.nbytes).view(plain.array.dtype).reshape(plain.array.shape)
    np.copyto(copy, plain.array)
    return PlainArray(copy, plain.tensor).restore()


def send(value: Any, memory: SharedBlocks, keep: list[Any]) -> SentField:
    """Describe a field to all workers. Append to `keep` the objects that must live until the workers are done."""
    plain = PlainArray.of(value)
    offset = None if plain is None else memory.offset_of(plain.array)
    if plain is not None and offset is not None:
        array = plain.array
        keep.append(value)
        return SharedArray(offset, array.nbytes, array.dtype.str, array.shape, array.strides, plain.tensor)
    if not isinstance(value, list) or not all(type(each) is bytes for each in value) or not any(value):
        return Copied(value)
    joined = b"".join(value)
    block, offset = memory.place(len(joined))
    block[:] = np.frombuffer(joined, np.uint8)
    keep.append(block)
    return SharedBytes(offset, np.cumsum([len(each) for each in value]))


ResultPlaces: TypeAlias = dict[str, tuple[RowLayout, int]]
"""Memory for fields of the mapped batch: rows of one layout, from an offset of the shared file."""


@dataclass(frozen=True)
class MapWork:
    """Batch to map. The parent sends only this and `ResultPlaces`, its answer to a `PlaceRequest`."""

    number: int
    """Number of the batch in the pass."""
    count: int
    """Rows of the batch."""
    rows: tuple[int, ...] | None
    """Rows of this worker, and the only rows in `fields`; None if free workers take the next row."""
    key: int
    draw_ids: NDArray[np.int64]
    passes: NDArray[np.uint32]
    fields: dict[str, SentField]
    places: ResultPlaces
    """Known places of results."""


Begun: TypeAlias = tuple[int, int]
"""Batch and row that the worker begins, sent if there is no shared memory to write them to."""


@dataclass(frozen=True)
class PlaceRequest:
    """Request for places of results with these layouts; the worker waits for `ResultPlaces`."""

    number: int
    layouts: dict[str, RowLayout]


@dataclass(frozen=True)
class MapFailure:
    """Exception of the user's code: pickled as far as possible, as text, and with its traceback as text."""

    row: int
    error: bytes
    words: str
    traceback: str

    @classmethod
    def of(cls, row: int, error: BaseException) -> MapFailure:
        """Describe an exception to the parent. If it cannot be pickled, its nearest base class that can replaces it."""
        user = whole = error.__traceback__  # from the user's code on; the whole traceback if it has none
        while user is not None and user.tb_frame.f_globals.get("__name__", "").startswith("headrace."):
            user = user.tb_next
        lines = traceback.format_exception(type(error), error, whole if user is None else user)
        words = f"{type(error).__qualname__}: {error}"
        return cls(row, _portable(error, words), words, "".join(lines).rstrip())

    def restore(self) -> BaseException:
        """Return the exception in the parent. It becomes a RuntimeError if its class exists only in the worker."""
        try:
            error: BaseException = pickle.loads(self.error)
        except Exception:  # the user's classes may raise anything
            error = RuntimeError(self.words)
        return error


@dataclass(frozen=True)
class Done:
    """Notice that this worker has finished its part of a batch, or will do no more of it."""

    number: int
    count: int
    """Number of mapped rows."""
    rows: bytes
    """Pickled dict of `map`'s results by row, without the parts in shared memory."""
    failure: MapFailure | None
    busy_s: float
    kept: bool = False
    """True if the user's code still refers to its input, so that the memory must not be reused."""
    let_go: tuple[int, ...] = ()
    """Batches that the user's code no longer refers to."""


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Pickle a tensor by its numbers: torch's own pickle includes all memory that the tensor is a view of."""
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(value, torch.Tensor):
            return NotImplemented
        plain = PlainArray.of(value)
        return NotImplemented if plain is None else (_restore, (plain.array, plain.tensor))


def _restore(array: Any, tensor: str) -> Any:
    return PlainArray(array.copy() if not array.flags.writeable else array, tensor).restore()


def dumps(message: object) -> bytes:
    buffer = io.BytesIO()
    _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(message)
    return buffer.getvalue()


def loads_rows(data: bytes) -> dict[int, Any]:
    """Unpickle `map`'s results, by row. Raises UsageError for values that cannot be restored."""
    try:
        rows: dict[int, Any] = pickle.loads(data)
    except Exception as error:  # the values' own classes may raise anything
        raise UsageError(
            f"map: expected values that can be pickled and made again, as they come from a process of their own, got "
            f"some that cannot ({type(error).__name__}: {error}); return arrays, tensors, numbers, text, or lists and "
            "dicts of these, or use map_workers=0"
        ) from error
    return rows


def _portable(error: BaseException, words: str) -> bytes:
    if (data := _survives(error)) is not None:
        return data
    for base in type(error).__mro__[1:]:
        try:
            stand_in = base(words)
        except Exception:  # its constructor takes other arguments
            continue
        if isinstance(stand_in, BaseException) and (data := _survives(stand_in)) is not None:
            return data
    return dumps(RuntimeError(words))


def _survives(error: BaseException) -> bytes | None:
    """Return the exception's pickle if it restores an equal exception, else None."""
    try:
        data = dumps(error)
        copy = pickle.loads(data)
    except Exception:  # the user's classes may raise anything
        return None
    return data if type(copy) is type(error) and str(copy) == str(error) else None


_APART = 8
"""Numbers per cache line of 64 bytes: each counter has its own line."""
NOTHING = -1


class MapCounters:
    """Counters shared with the workers: rows taken of each batch in flight, and each worker's current row."""

    def __init__(self, memory: NDArray[np.uint8], *, batches: int) -> None:
        """Use the first block of the shared file, of `counter_bytes`. `batches` is the maximum in flight."""
        self._batches = batches
        self._numbers = memory.view(np.int64)

    def reset(self) -> None:
        self._numbers[:] = NOTHING

    def begin_batch(self, number: int) -> None:
        """Reset a batch's counter before any worker sees the batch. There are as many counters as batches in flight."""
        self._numbers[number % self._batches * _APART] = 0

    def take(self, number: int, rows: int = 1) -> int:
        """Take the next free rows; return the first of them."""
        return _core.fetch_add(self._numbers, number % self._batches * _APART, rows)

    def set_at(self, worker: int, number: int, row: int) -> None:
        self._numbers[(self._batches + worker) * _APART] = number << 32 | row

    def set_idle(self, worker: int) -> None:
        self._numbers[(self._batches + worker) * _APART] = NOTHING

    def at(self, worker: int) -> tuple[int, int] | None:
        """Return the batch and row that a worker is at, or was at when it was killed."""
        at = int(self._numbers[(self._batches + worker) * _APART])
        return None if at == NOTHING else (at >> 32, at & 0xFFFF_FFFF)


def counter_bytes(*, batches: int, workers: int) -> int:
    return (batches + workers) * _APART * 8
