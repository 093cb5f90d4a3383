"""Objects in stores under the numbers that plans use, and their sizes."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from weakref import WeakValueDictionary

from headrace.data import ColumnFiles, ObjectPath
from headrace.stores import LARGEST_REQUEST_BYTES, Request

_REQUESTED_SHARE = 4
"""Requested bytes of an object of unknown size, as a multiple of the expected size: one request is enough for nearly
all, and memory is bounded."""
_LEAST_EXPECTED_BYTES = 1 << 16
_KNOWN_ENOUGH = 16


@dataclass(eq=False)
class NumberedObject:
    """Object under the number that plans use."""

    number: int
    path: ObjectPath
    expected_bytes: int | None = None
    """Size that plans assume; None: the size is known."""

    def size(self, expected_bytes: int) -> int:
        """Return the size that plans assume: `expected_bytes` before the object's first read."""
        if self.expected_bytes is None:
            if self.path.pin is not None:
                return self.path.pin.size
            self.expected_bytes = expected_bytes
        return self.expected_bytes

    def request(self, need: int) -> Request:
        """Return the first request for an object whose size plans assume, usually the only one."""
        assert self.expected_bytes is not None, "ranges of a known size are planned"
        stop = min(_REQUESTED_SHARE * self.expected_bytes, LARGEST_REQUEST_BYTES)
        return Request(self.path, 0, stop, need, may_end=True, with_rest=True)


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


def object_of(files: ColumnFiles, number: int) -> ObjectPath | None:
    """Return an object of a column; None if a sample has none, or a local file. Raises as `path` does."""
    path = files.object(number)
    assert path is None or isinstance(path, ObjectPath), "objects in stores are of one kind"
    return path


class ExpectedSize:
    """Expected size of an object whose size is unknown: the mean of the objects read so far."""

    def __init__(self) -> None:
        self._count = self._bytes = 0

    def add(self, size: int) -> None:
        """Record the size of an object that was read."""
        self._count += 1
        self._bytes += size

    def bytes(self, at_first: int) -> int:
        """Return the expected size; `at_first` before enough objects were read."""
        if self._count < _KNOWN_ENOUGH:
            return at_first
        return min(max(_LEAST_EXPECTED_BYTES, self._bytes // self._count), LARGEST_REQUEST_BYTES)
