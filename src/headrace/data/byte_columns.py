"""Byte columns in memory or in files of rows."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from mmap import PROT_READ, mmap
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.data.columns import (
    ByteColumn,
    BytesInMemory,
    BytesListColumn,
    Column,
    ColumnPart,
    NamedFileColumn,
    RangeColumn,
    TextColumn,
    numbers_in_ranges,
    offsets_of,
)
from headrace.data.location import ABSENT, MISSING, ColumnFiles, ListedObjects, Location, Version
from headrace.data.storage.file_writing import write_all
from headrace.data.storage.open_file import DescriptorOwner, FilePath
from headrace.data.storage.strings import Ints, StringColumn
from headrace.data.table import PathRoot, content_sample
from headrace.errors import NotFoundError, ReadError, UsageError

BytesLike = bytes | bytearray | memoryview

_DESCRIPTORS = "/proc/self/fd"
_PIECE_BYTES = 64 << 20


class MemoryFile(DescriptorOwner):
    """Append-only file in memory, closed with the last reference to it.

    `memfd_create` makes a file without a name or disk space. The core's threads read it like an archive, forked
    processes share it, and no Python object per sample is needed. Pickling copies it.
    """

    def __init__(self) -> None:
        """Create an empty file. Raises ReadError if the system cannot."""
        self.size = 0
        self._hashed = (-1, "")
        self._lock = threading.Lock()
        try:
            self._descriptor = os.memfd_create("headrace", os.MFD_CLOEXEC)
        except OSError as error:
            raise ReadError(
                f"no memory to hold bytes in: {error.strerror}. Write them to a tar or a folder, and open that"
            ) from error

    def __reduce__(self) -> tuple[Any, ...]:
        return _copied, (list(self.pieces()),)

    def put(self, data: BytesLike) -> int:
        """Append bytes and return their offset. Thread-safe. Raises ReadError if memory runs out."""
        content = memoryview(data).cast("B")
        with self._lock:
            at = self.size
            try:
                write_all(self._handle, content, at)
                self.size += len(content)
            except OSError as error:
                raise ReadError(
                    f"no memory to hold bytes in, after {self.size:,}: {error.strerror}. Write them to a tar or a "
                    f"folder, and open that"
                ) from error
        return at

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes in pieces."""
        for start in range(0, self.size, _PIECE_BYTES):
            yield os.pread(self._handle, _PIECE_BYTES, start)

    def mapped(self) -> npt.NDArray[np.uint8]:
        """Return all bytes, read-only and without a copy."""
        return np.frombuffer(mmap(self._handle, self.size, prot=PROT_READ) if self.size else b"", np.uint8)

    def digest(self) -> str:
        """Return a hash of all bytes; modification times of in-memory files are too coarse to identify content."""
        with self._lock:
            if self._hashed[0] != self.size:
                state = hashlib.blake2b(digest_size=16)
                if self.size:
                    with mmap(self._handle, self.size, prot=PROT_READ) as content:
                        state.update(content)
                self._hashed = self.size, state.hexdigest()
            return self._hashed[1]

    @property
    def path(self) -> bytes:
        """Path for opening the file in this process and its forks."""
        return f"{_DESCRIPTORS}/{self._handle}".encode()

    @property
    def files(self) -> ColumnFiles:
        """This file as the files of a column."""
        return RowFiles.of([self])


def _copied(pieces: list[bytes]) -> MemoryFile:
    file = MemoryFile()
    for piece in pieces:
        file.put(piece)
    return file


@dataclass(frozen=True, eq=False, repr=False)
class MemoryColumn(BytesInMemory):
    """Column of bytes in memory."""

    file: MemoryFile
    offset: Ints
    length: Ints
    files: ColumnFiles

    @classmethod
    def of(cls, file: MemoryFile, lengths: Iterable[int]) -> MemoryColumn:
        """Return a column over a file of concatenated values, from their lengths (`ABSENT` for none)."""
        length = np.fromiter(lengths, np.int64)
        held = np.maximum(length, 0)
        return cls(file, np.cumsum(held) - held, length, file.files)

    def locate(self, ids: Ints) -> Location:
        return Location(np.zeros(len(ids), np.int64), self.offset[ids], self.length[ids], None)

    def parts(self) -> Iterator[ColumnPart]:
        """Yield the bytes themselves: nothing else identifies them among values of the same lengths."""
        yield self.length, "<i8"
        for piece in self.file.pieces():
            yield np.frombuffer(piece, np.uint8), "<u1"

    def __reduce__(self) -> tuple[Any, ...]:
        return MemoryColumn.of, (self.file, self.length)


class GrowingBytes:
    """Builder of a `MemoryColumn`, sample by sample."""

    def __init__(self) -> None:
        self._file = MemoryFile()
        self._lengths = array("q")

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, data: BytesLike | None) -> None:
        """Append the next sample's bytes; None if it has none. Raises ReadError."""
        if data is not None:
            self._file.put(data)
        self._lengths.append(ABSENT if data is None else memoryview(data).nbytes)

    def add_all(self, data: BytesLike, lengths: Ints) -> None:
        """Append the concatenated bytes of many samples, and their lengths. Raises ReadError."""
        self._file.put(data)
        self._lengths.frombytes(np.ascontiguousarray(lengths, np.int64).tobytes())

    def column(self) -> MemoryColumn:
        return MemoryColumn.of(self._file, self._lengths)


class ByteRanges(NamedTuple):
    """Values of one column in one file, with an entry per row, or per item of the rows' lists."""

    offset: Ints
    """First byte in the file."""
    length: Ints
    """`ABSENT` for a null value."""
    paths: StringColumn | None = None
    """Paths of `{bytes, path}` values, empty for no path; None if no value has a path."""
    counts: Ints | None = None
    """Number of items of each row's list; None if each row has one value."""

    @classmethod
    def join(cls, parts: Sequence[ByteRanges]) -> ByteRanges:
        """Concatenate the values of several parts of one file."""
        paths = None
        if any(part.paths is not None for part in parts):
            none = (StringColumn.from_parts(b"", np.zeros(len(part.length), np.int64)) for part in parts)
            paths = StringColumn.join(part.paths or blank for part, blank in zip(parts, none, strict=True))
        nothing = [np.empty(0, np.int64)]
        offset = np.concatenate(nothing + [part.offset for part in parts])
        counts = [part.counts for part in parts if part.counts is not None]
        return cls(
            offset,
            np.concatenate(nothing + [part.length for part in parts]),
            paths,
            np.concatenate(nothing + counts) if counts else None,
        )

    @property
    def rows(self) -> int:
        return len(self.length if self.counts is None else self.counts)

    def moved(self, by: int) -> ByteRanges:
        """Return the same values, `by` bytes further on."""
        return self._replace(offset=self.offset + by)

    def values_of(self, rows: Ints) -> Ints:
        """Return the numbers of the values of these rows, in order."""
        if self.counts is None:
            return rows
        counts, first = self.counts[rows], (np.cumsum(self.counts) - self.counts)[rows]
        return numbers_in_ranges(first, counts)

    def take(self, rows: Ints) -> ByteRanges:
        values = self.values_of(rows)
        paths = None if self.paths is None else self.paths.take(values)
        counts = None if self.counts is None else self.counts[rows]
        return ByteRanges(self.offset[values], self.length[values], paths, counts)


ValuesFile: TypeAlias = FilePath | MemoryFile
"""File with values: an absolute path, an object, or a file in memory."""


@dataclass(frozen=True, eq=False)
class RowFiles(ColumnFiles):
    """Files with the values of many rows; `in_memory` maps file numbers to files in memory."""

    in_memory: Mapping[int, MemoryFile] = field(default_factory=dict)

    @classmethod
    def of(cls, files: Sequence[ValuesFile], *, beside_objects: bool = False) -> RowFiles:
        """Return files by absolute path, and objects. `beside_objects`: the column also has other objects."""
        in_memory = {number: file for number, file in enumerate(files) if isinstance(file, MemoryFile)}
        stored = [None if isinstance(file, str | MemoryFile) else file for file in files]
        names = [file.path if isinstance(file, MemoryFile) else os.fsencode(str(file)) for file in files]
        objects = ListedObjects(stored) if beside_objects or any(each is not None for each in stored) else None
        return cls("/", StringColumn.from_list(names), archives=True, objects=objects, in_memory=in_memory)

    def version(self, number: int) -> Version:
        held = self.in_memory.get(number)
        return super().version(number) if held is None else held.digest()

    def content_name(self, number: int) -> str | None:
        return None if number in self.in_memory else super().content_name(number)

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(RowFiles.of, beside_objects=self.is_remote), (self.sources(),)

    def beside_objects(self) -> RowFiles:
        """Return the same files for a column that also has other objects."""
        return self if self.is_remote else RowFiles.of(self.sources(), beside_objects=True)

    def sources(self) -> list[ValuesFile]:
        """Return the files as `of` takes them."""
        sources: list[ValuesFile] = []
        for number in range(len(self.names)):
            stored = self.object(number)
            local = self.in_memory.get(number, os.fsdecode(self.names.bytes(number)))
            sources.append(local if stored is None else stored)
        return sources


@dataclass(frozen=True, eq=False, repr=False)
class BytesOrFiles(ByteColumn):
    """Column of `{bytes, path}`: bytes in a file of rows, or else the file at the path."""

    inside: RangeColumn
    loose: NamedFileColumn
    """Files of all samples by path; empty for no path."""

    @property
    def files(self) -> ColumnFiles:  # type: ignore[override]  # a batch that needs others says so in its location
        return self.inside.files

    def locate(self, ids: Ints) -> Location:
        at = self.inside.locate(ids)
        assert at.offset is not None
        assert at.length is not None
        rows = np.flatnonzero(at.length == ABSENT)
        named = self.loose.locate(ids[rows])
        assert named.files is not None
        has_name = named.files.names.take(np.arange(len(rows))).lengths() > 0
        rows = rows[has_name]
        if not len(rows):
            return at
        loose, places = named.files, np.flatnonzero(has_name).tolist()
        kept = range(len(self.files))
        path_id, offset, length = at.path_id.copy(), at.offset.copy(), at.length.copy()
        path_id[rows] = np.arange(len(kept), len(kept) + len(rows))
        offset[rows] = 0
        length[rows] = [file_bytes(loose, place) for place in places]
        paths = [*(self.files.path(number) for number in kept), *(loose.path(place) for place in places)]
        stored = [*(self.files.object(number) for number in kept), *(loose.object(place) for place in places)]
        objects = ListedObjects(stored) if self.files.is_remote or loose.is_remote else None
        in_memory = self.files.in_memory if isinstance(self.files, RowFiles) else {}
        files = RowFiles("/", StringColumn.from_list(paths), archives=True, objects=objects, in_memory=in_memory)
        return Location(path_id, offset, length, None, files=files)

    def parts(self) -> Iterator[ColumnPart]:
        yield from self.inside.parts()
        yield StringColumn.join(self.loose.files.names.pieces()).blob, "<u1"


def file_bytes(files: ColumnFiles, number: int) -> int:
    """Return the size of a whole file or object, without a request if a listing stated it; `MISSING` if it is missing.

    Raises ReadError if a store cannot be reached.
    """
    try:
        stored = files.object(number)
        return os.stat(files.path(number)).st_size if stored is None else stored.open().size()
    except NotFoundError:
        return MISSING
    except ReadError:  # a transport error does not mean a missing file
        raise
    except OSError:
        return MISSING


def column_of_values(
    name: str, files: RowFiles, path_id: npt.NDArray[np.int32], values: ByteRanges, root: PathRoot
) -> Column:
    """Return the column of these values, or of lists of them; `path_id` is the number of each value's file.

    If no value has bytes and some have paths, the column is of the paths' texts. Raises UsageError if some values have
    bytes and others name members of archives.
    """
    if values.counts is not None:
        items = column_of_values(name, files, path_id, values._replace(counts=None), root)
        assert isinstance(items, ByteColumn | TextColumn)
        return BytesListColumn(offsets_of(values.counts), items)
    inside = RangeColumn(files, path_id, values.offset, values.length, None)
    if values.paths is None:
        return inside
    absent = values.length == ABSENT
    # A path next to bytes only records their origin.
    named = absent & (values.paths.lengths() > 0)
    if not named.any():
        return inside
    paths = StringColumn.from_parts(
        values.paths.blob[np.repeat(named, values.paths.lengths())], np.where(named, values.paths.lengths(), 0)
    )
    if absent.all():
        return TextColumn(paths)
    loose = root.column(paths)
    if not isinstance(loose, NamedFileColumn):
        raise UsageError(
            f"root: expected a folder, got archives: some values of {name!r} are bytes and others name files. Give the "
            f"folder that the files lie in"
        )
    if loose.files.is_remote:
        inside = replace(inside, files=files.beside_objects())
    return BytesOrFiles(inside, replace(loose))


def join_values(parts: Sequence[tuple[int, ByteRanges]]) -> tuple[npt.NDArray[np.int32], ByteRanges]:
    """Concatenate the values of (file number, values) parts, and return each value's file number with them."""
    counts = [len(part.length) for _, part in parts]
    return np.repeat(np.array([number for number, _ in parts], np.int32), counts), ByteRanges.join(
        [p for _, p in parts]
    )


def digest_with_bytes(held: str, columns: Mapping[str, Column]) -> str:
    """Return the identity of samples; `held` is the digest of all values other than bytes.

    It covers all lengths and the bytes of a few samples spread over the rows, but not the files.
    """
    state = hashlib.blake2b(json.dumps(["headrace rows 1", held]).encode(), digest_size=16)
    for name, column in sorted(columns.items()):
        if isinstance(column, ByteColumn | BytesListColumn):
            arrays = [(b"" if array is None else array.astype(dtype).tobytes()) for array, dtype in column.parts()]
            rows = int(column.offsets[-1]) if isinstance(column, BytesListColumn) else len(arrays[0]) // 8
            values = column.items if isinstance(column, BytesListColumn) else column
            inside = values.inside if isinstance(values, BytesOrFiles) else values
            content = []
            if isinstance(inside, ByteColumn) and not inside.names_content:
                content = content_sample(rows, inside)
            state.update(json.dumps([name, *map(len, arrays), content]).encode())
            for array in arrays:
                state.update(array)
    return state.hexdigest()
