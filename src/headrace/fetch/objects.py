"""Objects in stores under the numbers that requests use, their reader, and their sizes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakValueDictionary

from headrace.data import (
    MOST_STREAMS,
    ColumnFiles,
    FailedRequestError,
    ObjectPath,
    RangeRequest,
    Request,
    StoreAttempts,
    remote_error,
)
from headrace.errors import ChangedError, HeadraceError, NotFoundError
from headrace.system import work_through


@dataclass(eq=False)
class NumberedObject:
    """Object under the number that requests use."""

    number: int
    path: ObjectPath


class Attempts(Protocol):
    """Attempts at one request, the interface of `StoreAttempts`."""

    @property
    def count(self) -> int:
        """Number of attempts so far."""

    def start(self) -> None:
        """Record that the next attempt begins."""

    def after(self, failure: FailedRequestError, now_s: float) -> float | None:
        """Return the pause before the next attempt, in seconds; None if there is no next attempt."""


class RangeReader(Protocol):
    """Reader of ranges of numbered objects."""

    async def read_range(self, number: int, start: int, stop: int, begun: Callable[[], None]) -> Any:
        """Return the bytes [start, stop) as a buffer. Call `begun` once the answer begins.

        Raises FailedRequestError, which has the kind of failure.
        """

    def attempts(self, number: int, now_s: float) -> Attempts:
        """Return the attempts at a range of an object. The first attempt begins now."""

    def failed(self, request: Request, failure: FailedRequestError, attempts: int) -> HeadraceError:
        """Return the error for a request that failed for good; it names the object and the remedy."""


class Objects:
    """Objects by number, for as long as they are referenced: a dataset may have one file per sample."""

    def __init__(self) -> None:
        self._count = 0
        self._by_identity: WeakValueDictionary[Hashable, NumberedObject] = WeakValueDictionary()
        self._by_number: WeakValueDictionary[int, NumberedObject] = WeakValueDictionary()

    def numbered(self, path: ObjectPath) -> NumberedObject:
        found = self._by_identity.get(path.identity)
        if found is None:
            found = self._by_identity[path.identity] = self._by_number[self._count] = NumberedObject(self._count, path)
            self._count += 1
        return found

    def __getitem__(self, number: int) -> NumberedObject:
        return self._by_number[number]

    async def read_range(self, number: int, start: int, stop: int, begun: Callable[[], None]) -> memoryview:
        """Return the bytes [start, stop). Call `begun` once the answer begins. Raises FailedRequestError."""
        path = self[number].path
        data, _ = await path.store.read_async(path.key, start, stop, path.pin, begun)
        return data

    def attempts(self, number: int, now_s: float) -> StoreAttempts:
        path = self[number].path
        return StoreAttempts(path.store, now_s, is_known=path.pin is not None)

    def failed(self, request: Request, failure: FailedRequestError, attempts: int) -> HeadraceError:
        path = self[request.object].path
        error = remote_error(failure, RangeRequest(str(path), request.start, request.stop), attempts=attempts)
        if isinstance(error, ChangedError | NotFoundError):
            path.outdated()
        return error


def object_of(files: ColumnFiles, number: int) -> ObjectPath | None:
    """Return an object of a column; None if a sample has none, or a local file. Raises as `path` does."""
    path = files.object(number)
    assert path is None or isinstance(path, ObjectPath), "objects in stores are of one kind"
    return path


def ask_sizes(paths: Sequence[ObjectPath]) -> None:
    """Request the unknown sizes of objects, several at once. Raises as opening them does."""

    def ask(path: ObjectPath) -> None:
        path.open().size()

    if paths:
        work_through(paths, ask, name="fetch-sizes", threads=min(MOST_STREAMS, len(paths)))


def object_bytes(path: ObjectPath | None) -> int:
    """Return the size of a whole object in bytes. Raises as opening it does."""
    return 0 if path is None else path.open().size()
