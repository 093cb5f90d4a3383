"""Many strings or numbers without an object each: in memory, or in a file."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt

from headrace._core import BlockChecks, take_names
from headrace.data.storage.open_file import OpenFile
from headrace.errors import ChangedError

Ints = npt.NDArray[np.int64]
"""Positions, ids, offsets or counts."""
Bytes = npt.NDArray[np.uint8]
Raw = bytes  # type of `Strings.bytes`, which shadows `bytes` in the class
Offsets = npt.NDArray[np.uint64]

T = TypeVar("T")

_SHOWN = 5
_PIECE = 1 << 16
_ITERATED = 1 << 12  # read in blocks, since single entries of an array are slow


class Strings(ABC):
    """Many strings by position, without an object each.

    They are UTF-8; other bytes become surrogate escapes, as in file names.
    """

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, indices: Ints) -> StringColumn:
        """Return the strings at `indices` (non-negative), in that order."""

    def pieces(self) -> Iterator[StringColumn]:
        """Yield all strings in order, in pieces that take little memory."""
        for start in range(0, len(self), _PIECE):
            yield self.take(np.arange(start, min(start + _PIECE, len(self))))

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
        """Return string `index` as stored bytes; a negative index counts from the end."""
        size = len(self)
        if not -size <= index < size:
            raise IndexError(f"string {index} of {size}")
        return self._at(int(index) % size)

    def _at(self, index: int) -> Raw:
        return self.take(np.array([index])).blob.tobytes()


class StringColumn(Strings):
    """Strings in memory: `i` is `blob[offsets[i]:offsets[i + 1]]`; `blob` uint8[...], `offsets` uint64[n + 1]."""

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
        """Return a column of strings joined without separators, given their lengths in bytes."""
        offsets = np.zeros(len(lengths) + 1, np.uint64)
        np.cumsum(lengths, out=offsets[1:], dtype=np.uint64)
        return cls(np.frombuffer(blob, np.uint8), offsets)

    @classmethod
    def join(cls, columns: Iterable[StringColumn]) -> StringColumn:
        """Concatenate the strings of several columns."""
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

    def lengths(self) -> Ints:
        """Return each string's length in bytes."""
        offsets = self.offsets.view(np.int64)
        return offsets[1:] - offsets[:-1]

    def take(self, indices: Ints) -> StringColumn:
        offsets = self.offsets.view(np.int64)
        starts = offsets[:-1][indices]
        lengths = offsets[1:][indices] - starts  # not from `lengths`, which reads all offsets
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - lengths, lengths)
        return StringColumn.from_parts(self.blob[np.repeat(starts, lengths) + within], lengths)

    @property
    def nbytes(self) -> int:
        return self.blob.nbytes + self.offsets.nbytes

    def _used(self) -> Bytes:
        return self.blob[int(self.offsets[0]) : int(self.offsets[-1])]


class StoredStrings(Strings):
    """Strings in a file, read and verified on access.

    Mapped, their pages would fill memory on scattered access: `core/names/stored_names.hpp`.
    """

    __slots__ = ("_blob_at", "_blob_bytes", "_checks", "_count", "_file", "_offsets_at")

    def __init__(
        self,
        file: OpenFile,
        *,
        blob_at: int,
        blob_bytes: int,
        offsets_at: int,
        count: int,
        checks: BlockChecks | None = None,
    ) -> None:
        self._file = file
        self._checks = checks
        self._blob_at, self._blob_bytes = blob_at, blob_bytes
        self._offsets_at, self._count = offsets_at, count

    def __len__(self) -> int:
        return self._count

    def take(self, indices: Ints) -> StringColumn:
        """Return the strings at `indices`. Raises ReadError, ChangedError."""

        def read(descriptor: int) -> StringColumn:
            blob, offsets = take_names(
                descriptor,
                blob_at=self._blob_at,
                blob_bytes=self._blob_bytes,
                offsets_at=self._offsets_at,
                count=self._count,
                which=np.ascontiguousarray(indices, np.int64),
                checks=self._checks,
            )
            return StringColumn(blob, offsets)

        return _read(self._file, read)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the strings themselves: another process may find another file, or none."""
        return _whole, (StringColumn.join(self.pieces()),)


def _whole(found: T) -> T:
    return found


class StoredArray:
    """Numbers of a mapped file, verified before they are returned.

    Indexing returns an array, and verifies only the checksums of its entries. All other attributes belong to the whole
    array, which is verified first.
    """

    __slots__ = ("_at", "_checks", "_file", "_mapped")

    def __init__(self, mapped: npt.NDArray[Any], file: OpenFile, *, at: int, checks: BlockChecks) -> None:
        """Wrap `mapped`, the bytes of `file` from byte `at` on."""
        self._mapped, self._file, self._at, self._checks = mapped, file, at, checks

    def __len__(self) -> int:
        return len(self._mapped)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._mapped.dtype

    @property
    def ndim(self) -> int:
        return self._mapped.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return self._mapped.shape

    @property
    def nbytes(self) -> int:
        return self._mapped.nbytes

    @property
    def base(self) -> Any:
        """Base object of the mapping, for `release_pages`."""
        return self._mapped.base

    def __getitem__(self, index: Any) -> Any:
        """Return the entries at `index`. Raises ReadError, ChangedError."""
        rows = self._rows(index)
        item, count = self._mapped.itemsize, len(self._mapped)

        def check(descriptor: int) -> None:
            if isinstance(rows, range):
                if len(rows):
                    low, high = min(rows[0], rows[-1]), max(rows[0], rows[-1])
                    self._checks.check(descriptor, self._at + low * item, self._at + (high + 1) * item)
            else:
                self._checks.check_rows(descriptor, at=self._at, row_bytes=item, count=count, rows=rows)

        _read(self._file, check)
        return self._mapped[index]

    def _rows(self, index: Any) -> range | Ints:
        """Return the rows for `index`, or a superset."""
        everything = range(len(self._mapped))
        if isinstance(index, slice):
            return everything[index]
        if isinstance(index, int | np.integer):
            return everything[index : index + 1 or None] if index < 0 else range(index, min(index + 1, len(everything)))
        if isinstance(index, np.ndarray) and index.dtype.kind in "iu" and not (len(index) and index.min() < 0):
            return np.ascontiguousarray(index.reshape(-1), np.int64)
        return everything

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        found = self[:]
        if dtype is not None and np.dtype(dtype) != found.dtype:
            return np.asarray(found, dtype)
        return found.copy() if copy else np.asarray(found)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # protocols must not find attributes of the whole array
            raise AttributeError(name)
        return getattr(self[:], name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the numbers themselves, as `StoredStrings` does."""
        return _whole, (np.array(self[:]),)


def _read(file: OpenFile, read: Callable[[int], T]) -> T:
    """Return `read` of the file's descriptor. A ValueError means a damaged file, which is removed."""
    try:
        return file.read_by(read)
    except ValueError as error:
        gone = _remove(file)
        then = "It was removed: open the dataset again, which rebuilds it" if gone else "Remove it, and open again"
        raise ChangedError(f"{file}: {error}: it is damaged. {then}") from error


def _remove(file: OpenFile) -> bool:
    """Remove the file unless another has its name, and return True if it was removed."""
    with suppress(OSError):
        if os.path.samestat(file.status(), os.stat(file.path, follow_symlinks=False)):
            os.unlink(file.path)
            return True
    return False


class NumberKeys(Strings):
    """Sample names from numbers, without a string each: rows of a manifest, or a column of ids."""

    __slots__ = ("_numbers",)

    def __init__(self, numbers: npt.NDArray[Any] | StoredArray | range) -> None:
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, indices: Ints) -> StringColumn:
        if isinstance(self._numbers, range):
            return StringColumn.from_list(str(self._numbers[index]) for index in indices.tolist())
        return StringColumn.from_list(map(str, self._numbers[indices]))
