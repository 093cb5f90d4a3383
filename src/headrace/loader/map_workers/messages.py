"""What the loader and its workers send each other: messages, fields in shared memory, pickles, counters."""

from __future__ import annotations

import io
import pickle
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.loader.batch_memory import SharedBlocks
from headrace.loader.batch_values import PlainArray, RowLayout

IMMUTABLE = (bytes, str, int, float, bool, complex, type(None), np.generic)


class Blocks(Protocol):
    """Shared file as a worker sees it."""

    def fresh(self, offset: int, bytes: int) -> NDArray[np.uint8]:
        """Return a part of it as an array that lives as long as something refers to it."""
        ...


@dataclass(frozen=True)
class SharedArray:
    """Array or tensor that lies in a block of the shared file."""

    offset: int
    nbytes: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    tensor: str | None
    shared: bool = True

    def open(self, blocks: Blocks) -> Any:
        block = blocks.fresh(self.offset, self.nbytes)
        return PlainArray(np.ndarray(self.shape, self.dtype, block, 0, self.strides), self.tensor).restore()


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
    """Move a field into shared memory if it is an array that lies elsewhere."""
    plain = PlainArray.of(value)
    if plain is None or plain.array.nbytes == 0 or memory.offset_of(plain.array) is not None:
        return value
    copy = memory.acquire(plain.array.nbytes).view(plain.array.dtype).reshape(plain.array.shape)
    np.copyto(copy, plain.array)
    return PlainArray(copy, plain.tensor).restore()


def send(value: Any, memory: SharedBlocks, keep: list[Any]) -> SentField:
    """Describe a field to all workers. Add to `keep` what must live until they are done."""
    plain = PlainArray.of(value)
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
    """Copy some rows of a field, where there is no shared memory."""
    return Copied(type(value)(value[row] for row in rows) if isinstance(value, list) else value[list(rows)])


@dataclass(frozen=True)
class ResultPlace:
    """Memory for one field of the mapped batch: rows of one layout, from `offset` of the shared file."""

    layout: RowLayout
    offset: int
    bytes: int


@dataclass(frozen=True)
class MapWork:
    """Batch to map: the first message after a worker's start, and after each of its `Done`."""

    number: int
    """Number of the batch in the pass."""
    count: int
    """Rows of the batch."""
    rows: tuple[int, ...] | None
    """Rows of this worker, and the only ones in `fields`; None if free workers take the next row."""
    key: int
    draw_ids: NDArray[np.int64]
    passes: NDArray[np.uint32]
    fields: dict[str, SentField]
    places: dict[str, ResultPlace]
    """Places of results, as far as they are known."""


@dataclass(frozen=True)
class ResultPlaces:
    """Answer to `PlaceRequest`."""

    places: dict[str, ResultPlace]


@dataclass(frozen=True)
class Begun:
    """Notice that the worker begins this row, where there is no shared memory to say it in."""

    number: int
    row: int


@dataclass(frozen=True)
class PlaceRequest:
    """Request for places of results of these layouts; the worker waits for `ResultPlaces`."""

    number: int
    layouts: dict[str, RowLayout]


@dataclass(frozen=True)
class MapFailure:
    """Exception of the user's code: pickled, as text, and with its traceback as text."""

    row: int
    error: bytes
    words: str
    traceback: str


@dataclass(frozen=True)
class Done:
    """Notice that this worker has done its part of a batch, or will do no more of it."""

    number: int
    count: int
    """Rows that were mapped."""
    rows: bytes
    """A pickled dict of what map returned for each of them, less what lies in shared memory."""
    failure: MapFailure | None
    busy_s: float
    kept: bool
    """True if the user's code still refers to its input: the memory must not be reused."""
    let_go: tuple[int, ...] = field(default=())
    """Earlier batches that are no longer kept."""


ToWorker: TypeAlias = MapWork | ResultPlaces
FromWorker: TypeAlias = Begun | PlaceRequest | Done


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        """Pickle a tensor by its numbers: its own pickle holds all of the memory that it is a view of."""
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
    """Unpickle what `map` returned, by row. Raises UsageError for values that cannot be restored."""
    try:
        rows: dict[int, Any] = pickle.loads(data)
    except Exception as error:  # whatever the values' own classes raise
        raise UsageError(
            f"map: expected values that can be pickled and made again, as they come from a process of their own, got "
            f"some that cannot ({type(error).__name__}: {error}); return arrays, tensors, numbers, text, or lists and "
            "dicts of these, or use map_workers=0"
        ) from error
    return rows


def failure(row: int, error: BaseException) -> MapFailure:
    """Describe an exception to the parent. One that cannot be pickled goes as the nearest of its bases that can."""
    lines = traceback.format_exception(type(error), error, _from_the_user(error.__traceback__))
    words = f"{type(error).__qualname__}: {error}"
    return MapFailure(row, _portable(error, words), words, "".join(lines).rstrip())


def restore_error(failure: MapFailure) -> BaseException:
    """Return the exception in the parent. One whose class exists in the worker alone becomes a RuntimeError."""
    try:
        error: BaseException = pickle.loads(failure.error)
    except Exception:  # whatever the user's classes raise
        error = RuntimeError(failure.words)
    return error


def _from_the_user(whole: TracebackType | None) -> TracebackType | None:
    """Cut off the calls that led to the user's code; keep all if none of it is the user's."""
    part = whole
    while part is not None and part.tb_frame.f_globals.get("__name__", "").startswith("headrace."):
        part = part.tb_next
    return whole if part is None else part


def _portable(error: BaseException, words: str) -> bytes:
    if (data := _survives(error)) is not None:
        return data
    for base in type(error).__mro__[1:]:
        try:
            stand_in = base(words)
        except Exception:  # its constructor wants something else
            continue
        if isinstance(stand_in, BaseException) and (data := _survives(stand_in)) is not None:
            return data
    return dumps(RuntimeError(words))


def _survives(error: BaseException) -> bytes | None:
    """Return the exception's pickle, if it restores an equal one."""
    try:
        data = dumps(error)
        copy = pickle.loads(data)
    except Exception:  # whatever the user's classes raise
        return None
    return data if type(copy) is type(error) and str(copy) == str(error) else None


_APART = 8
"""Each number has a cache line of its own: 64 bytes."""
NOTHING = -1


@dataclass(frozen=True)
class CountersPlace:
    """Place of the counters in the shared file."""

    offset: int
    batches: int
    workers: int

    @property
    def nbytes(self) -> int:
        return (self.batches + self.workers) * _APART * 8


class MapCounters:
    """Counters shared with the workers: rows taken of each batch in flight, and the row that each worker is at."""

    def __init__(self, place: CountersPlace, memory: NDArray[np.uint8]) -> None:
        self._batches = place.batches
        self._numbers = memory[: place.nbytes].view(np.int64)

    def reset(self) -> None:
        self._numbers[:] = NOTHING

    def begin_batch(self, number: int) -> None:
        """Reset a batch's counter before any worker hears of it. There are as many counters as batches in flight."""
        self._numbers[self._batch(number)] = 0

    def take_row(self, number: int) -> int:
        """Take the next row that nobody else has."""
        return _core.fetch_add(self._numbers, self._batch(number), 1)

    def take_all(self, number: int, count: int) -> None:
        """Take all remaining rows."""
        _core.fetch_add(self._numbers, self._batch(number), count)

    def set_at(self, worker: int, number: int, row: int) -> None:
        self._numbers[self._worker(worker)] = number << 32 | row

    def set_idle(self, worker: int) -> None:
        self._numbers[self._worker(worker)] = NOTHING

    def at(self, worker: int) -> tuple[int, int] | None:
        """Return the batch and row that a worker is at, or was at when it was killed."""
        at = int(self._numbers[self._worker(worker)])
        return None if at == NOTHING else (at >> 32, at & 0xFFFF_FFFF)

    def _batch(self, number: int) -> int:
        return number % self._batches * _APART

    def _worker(self, worker: int) -> int:
        return (self._batches + worker) * _APART
