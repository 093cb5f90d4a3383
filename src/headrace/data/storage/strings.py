"""Many strings, or numbers, that stay in a file: read from it where they are asked for, checked there, never held."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from headrace._core import BlockChecks, take_names
from headrace.data.storage.open_file import OpenFile
from headrace.data.strings import StringColumn, Strings
from headrace.errors import ChangedError

T = TypeVar("T")

_PIECE = 1 << 16


class StoredStrings(Strings):
    """As `StringColumn`, by where its two arrays lie in a file.

    Mapped, they would fill memory as they are looked at here and there: `core/names/stored_names.hpp`.
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

    def take(self, indices: npt.NDArray[np.int64]) -> StringColumn:
        """Raises ReadError, ChangedError."""

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
        """The strings themselves: where the file is unpickled it may be another one, or none."""
        return _whole, (StringColumn.join(self.pieces()),)

    def pieces(self) -> Iterator[StringColumn]:
        for start in range(0, self._count, _PIECE):
            yield self.take(np.arange(start, min(start + _PIECE, self._count)))


def _whole(found: T) -> T:
    return found


class StoredArray:
    """Numbers of a file that is mapped, each checked before it is given out.

    By an index it is an array of what is there, and of those entries alone the checksums are looked at. Anything else
    that an array has is that of the whole array, once all of it is checked.
    """

    __slots__ = ("_at", "_checks", "_file", "_mapped")

    def __init__(self, mapped: npt.NDArray[Any], file: OpenFile, *, at: int, checks: BlockChecks) -> None:
        """`mapped` are the bytes of `file` from byte `at` on."""
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
        """Return the mapping, for who lets go of its pages."""
        return self._mapped.base

    def __getitem__(self, index: Any) -> Any:
        """Raises ReadError, ChangedError."""
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

    def _rows(self, index: Any) -> range | npt.NDArray[np.int64]:
        """Return the rows that `index` asks for, and perhaps others."""
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
        if name.startswith("__"):  # what protocols ask for is theirs alone to have
            raise AttributeError(name)
        return getattr(self[:], name)

    def __reduce__(self) -> tuple[Any, ...]:
        """Send the numbers themselves, as of strings."""
        return _whole, (np.array(self[:]),)


def _read(file: OpenFile, read: Callable[[int], T]) -> T:
    """Return what `read` makes of the file's descriptor. Where that says ValueError the file is damaged: it goes, so
    that the next opening builds it anew."""
    try:
        return file.read_by(read)
    except ValueError as error:
        gone = _remove(file)
        then = "It was removed: open the dataset again, which builds it anew" if gone else "Remove it, and open again"
        raise ChangedError(f"{file}: {error}: it is damaged. {then}") from error


def _remove(file: OpenFile) -> bool:
    """Remove the file, and tell whether that went; what has come in its place stays."""
    with suppress(OSError):
        if os.path.samestat(file.status(), os.stat(file.path, follow_symlinks=False)):
            os.unlink(file.path)
            return True
    return False
