"""Bytes that are held in memory, as a column that is read as those of files are.

They lie end to end in a file of the kernel's that has no name and no disk (`memfd_create`). So the core's threads read
them as they read an archive, forked processes share them, and no object is kept for a sample.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.data.columns import ABSENT, ByteColumn, Location, Part
from headrace.data.files import Files
from headrace.data.strings import StringColumn
from headrace.errors import ReadError

Ints = npt.NDArray[np.int64]
Data = bytes | bytearray | memoryview

_DESCRIPTORS = "/proc/self/fd"
_PIECE_BYTES = 64 << 20


class MemoryFile:
    """A file in memory that grows at its end, closed with the last reference to it.

    A forked process has it, too. Another process gets a copy of what is in it.
    """

    def __init__(self) -> None:
        """Make an empty one. Raises ReadError where the system gives none."""
        self._descriptor: int | None = None
        self.size = 0
        try:
            self._descriptor = os.memfd_create("headrace", os.MFD_CLOEXEC)
        except OSError as error:
            raise ReadError(
                f"no memory to hold bytes in: {error.strerror}. Write them to a tar or a folder, and open that"
            ) from error

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (list(self.pieces()),)

    def append(self, data: Data) -> int:
        """Return how many bytes were put at the end. Raises ReadError where there is no more memory."""
        left = memoryview(data).cast("B")
        count = left.nbytes
        try:
            while left:
                written = os.pwrite(self._handle, left, self.size)
                self.size += written
                left = left[written:]
        except OSError as error:
            raise ReadError(
                f"no memory to hold bytes in, after {self.size:,}: {error.strerror}. Write them to a tar or a folder, "
                f"and open that"
            ) from error
        return count

    def pieces(self) -> Iterator[bytes]:
        """Return all that is in it, some at a time."""
        for start in range(0, self.size, _PIECE_BYTES):
            yield os.pread(self._handle, _PIECE_BYTES, start)

    @property
    def path(self) -> bytes:
        """The name by which this process, and any that it forks, opens the file."""
        return f"{_DESCRIPTORS}/{self._handle}".encode()

    @property
    def files(self) -> Files:
        """Return the one file, as a column has it."""
        return Files(_DESCRIPTORS, StringColumn.from_list([str(self._handle)]), archives=True)

    @property
    def _handle(self) -> int:
        assert self._descriptor is not None
        return self._descriptor


def _copied(pieces: list[bytes]) -> MemoryFile:
    file = MemoryFile()
    for piece in pieces:
        file.append(piece)
    return file


@dataclass(frozen=True, eq=False)
class MemoryColumn(ByteColumn):
    """Bytes of each sample, by sample id, in memory."""

    file: MemoryFile
    offset: Ints
    length: Ints
    """`ABSENT` where a sample has none."""
    files: Files

    @classmethod
    def of(cls, file: MemoryFile, lengths: Iterable[int]) -> MemoryColumn:
        """Make a column of a file that the samples' bytes lie in, end to end, and their lengths (`ABSENT` for none)."""
        length = np.fromiter(lengths, np.int64)
        held = np.maximum(length, 0)
        return cls(file, np.cumsum(held) - held, length, file.files)

    def locate(self, ids: Ints) -> Location:
        return Location(np.zeros(len(ids), np.int64), self.offset[ids], self.length[ids], None)

    def parts(self) -> Iterator[Part]:
        """Return the bytes themselves: nothing else tells them from others of the same lengths."""
        yield self.length, "<i8"
        for piece in self.file.pieces():
            yield np.frombuffer(piece, np.uint8), "<u1"

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryColumn.of, (self.file, self.length)


class GrowingBytes:
    """A `MemoryColumn` in the making, sample by sample."""

    def __init__(self) -> None:
        self._file = MemoryFile()
        self._lengths = array("q")

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, data: Data | None) -> None:
        """Take the next sample's bytes; None: it has none. Raises ReadError."""
        self._lengths.append(ABSENT if data is None else self._file.append(data))

    def add_all(self, data: Data, lengths: Ints) -> None:
        """Take the bytes of many samples end to end, and their lengths. Raises ReadError."""
        self._file.append(data)
        self._lengths.frombytes(np.ascontiguousarray(lengths, np.int64).tobytes())

    def column(self) -> MemoryColumn:
        return MemoryColumn.of(self._file, self._lengths)
