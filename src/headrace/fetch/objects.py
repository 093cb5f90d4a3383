"""Objects in stores under the numbers that plans use, and their sizes."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from weakref import WeakValueDictionary

from headrace.data import ColumnFiles, ObjectPath
from headrace.stores import MOST_STREAMS
from headrace.system import work_through


@dataclass(eq=False)
class NumberedObject:
    """Object under the number that plans use."""

    number: int
    path: ObjectPath


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


def ask_sizes(paths: Sequence[ObjectPath]) -> None:
    """Request the unknown sizes of objects, several at once. Raises as opening them does."""

    def ask(path: ObjectPath) -> None:
        path.open().size()

    if paths:
        work_through(paths, ask, name="fetch-sizes", threads=min(MOST_STREAMS, len(paths)))


def object_bytes(path: ObjectPath | None) -> int:
    """Return the size of a whole object in bytes. Raises as opening it does."""
    return 0 if path is None else path.open().size()
