"""Many strings without an object each: one blob and its offsets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Raw = bytes  # what `Strings.bytes` gives; in the class the name is the method's
Offsets = npt.NDArray[np.uint64]

_SHOWN = 5
_ITERATED = 1 << 12  # at a time: single entries of an array are slow to take


class Strings(ABC):
    """Many strings by position. They are UTF-8; bytes that are not come back as surrogate escapes, as the file system's
    names do."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        """The strings at `indices` (non-negative), in that order."""

    @abstractmethod
    def pieces(self) -> Iterator[StringColumn]:
        """All of them, in order, so many at a time as cost little memory."""

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    @overload
    def __getitem__(self, index: int) -> str: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return list(self.take(np.arange(*index.indices(len(self)), dtype=np.int64)))
        return self.bytes(index).decode("utf-8", "surrogateescape")

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self[:_SHOWN])) + (", …" if len(self) > _SHOWN else "")
        return f"{len(self):,} strings: {shown}" if len(self) else "no strings"

    def __iter__(self) -> Iterator[str]:
        for piece in self.pieces():
            yield from (piece[i] for i in range(len(piece)))

    def bytes(self, index: int) -> Raw:
        """String `index` as it is stored; a negative index counts from the end."""
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"string {index} of {size}")
        return self._at(int(index) % size)

    def _at(self, index: int) -> Raw:
        return self.take(np.array([index])).blob.tobytes()


class StringColumn(Strings):
    """String `i` is `blob[offsets[i]:offsets[i + 1]]`: `blob` uint8[...], `offsets` uint64[n + 1]."""

    __slots__ = ("blob", "offsets")

    def __init__(self, blob: Bytes, offsets: Offsets) -> None:
        self.blob = blob
        self.offsets = offsets

    @classmethod
    def from_list(cls, strings: Iterable[str | bytes]) -> StringColumn:
        parts = [part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape") for part in strings]
        return cls.from_parts(b"".join(parts), np.fromiter(map(len, parts), np.int64, len(parts)))

    @classmethod
    def from_parts(cls, blob: bytes | Bytes, lengths: npt.NDArray[np.integer[Any]]) -> StringColumn:
        """From the strings joined without separators, and their lengths in bytes."""
        offsets = np.zeros(len(lengths) + 1, np.uint64)
        np.cumsum(lengths, out=offsets[1:], dtype=np.uint64)
        return cls(np.frombuffer(blob, np.uint8), offsets)

    @classmethod
    def join(cls, columns: Iterable[StringColumn]) -> StringColumn:
        """The strings of several columns, one after another."""
        columns = list(columns)
        blobs = [column._used() for column in columns]
        lengths = [column.lengths() for column in columns]
        return cls.from_parts(
            np.concatenate([np.empty(0, np.uint8), *blobs]), np.concatenate([np.empty(0, np.int64), *lengths])
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _ITERATED):
            offsets = self.offsets[first : first + _ITERATED + 1].tolist()
            blob = self.blob[offsets[0] : offsets[-1]].tobytes()
            for start, stop in pairwise(offsets):
                yield blob[start - offsets[0] : stop - offsets[0]].decode("utf-8", "surrogateescape")

    def pieces(self) -> Iterator[StringColumn]:
        yield self

    def _at(self, index: int) -> Raw:
        return self.blob[int(self.offsets[index]) : int(self.offsets[index + 1])].tobytes()

    def lengths(self) -> npt.NDArray[np.int64]:
        """Each string's length in bytes."""
        offsets = self.offsets.view(np.int64)
        return offsets[1:] - offsets[:-1]

    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        """The strings at `indices` (non-negative), in that order."""
        offsets = self.offsets.view(np.int64)
        starts = offsets[:-1][indices]
        lengths = offsets[1:][indices] - starts  # not out of `lengths`, which looks at all strings
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return StringColumn.from_parts(self.blob[np.repeat(starts, lengths) + within], lengths)

    @property
    def nbytes(self) -> int:
        return self.blob.nbytes + self.offsets.nbytes

    def _used(self) -> Bytes:
        return self.blob[int(self.offsets[0]) : int(self.offsets[-1])]
