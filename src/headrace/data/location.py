"""Where the bytes of a batch lie: files by number, local or in stores, and ranges in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace._core import Paths, Ranges, leads_out
from headrace.data.storage.open_file import OpenFile, ReadableFile, StoredPath
from headrace.data.storage.sidecar import identify
from headrace.data.storage.strings import Ints, StringColumn, Strings
from headrace.errors import NotFoundError, OutsideRootError, ReadError

if TYPE_CHECKING:
    from typing_extensions import Buffer

Checks = npt.NDArray[np.uint32]
Version: TypeAlias = tuple[int, int] | str | None
"""What changes with a file's content: size and time of modification of a local file, a hash of an object's address and
of what its store states, a hash of the content in memory; None: unknown."""

ABSENT = -1
"""Length of a member that a sample does not have."""
MISSING = -2
"""Length where a sample names a member that no archive holds."""


class StoredObjects(Protocol):
    """Objects in stores that a column's names stand for."""

    def object(self, number: int, name: bytes) -> StoredPath | None:
        """Return the object of a number and a name, pinned to its content where that is known; None: a local file."""
        ...


@dataclass(frozen=True, eq=False)
class ListedObjects:
    """Objects by their number, such as archives in stores."""

    paths: Sequence[StoredPath | None]
    """None for a local file."""

    def object(self, number: int, _: bytes) -> StoredPath | None:
        """Return the object of that number."""
        return self.paths[number]


@dataclass(frozen=True, eq=False)
class ColumnFiles:
    """Files of a column, by number: names below a folder, without an object each. An empty name stands for no file."""

    root: str
    """Absolute folder, or address of a prefix in a store, that `names` are relative to."""
    names: Strings
    archives: bool
    """Whether each is read again and again, and so stays open: a tar, not a loose image."""
    inside: bool = False
    """Whether a name may not lead out of the root; otherwise an absolute one stands for itself."""
    objects: StoredObjects | None = None
    """Objects that the names stand for; None: local files."""

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> bytes:
        """Return a path, empty for no file. Raises OutsideRootError, and ReadError for a name that no file can have."""
        name = self._checked(number)
        stored = None if self.objects is None or not name else self.objects.object(number, name)
        if stored is not None:
            return os.fsencode(str(stored))
        return os.path.join(os.fsencode(self.root), name) if name else name

    def _checked(self, number: int) -> bytes:
        name = self.names.bytes(number)
        if not name:
            return name
        if b"\0" in name:
            raise ReadError(f"no file's name holds a NUL byte, got {os.fsdecode(name)!r}")
        if self.inside and leads_out(name):
            raise OutsideRootError(outside_root_text(f"the path {os.fsdecode(name)!r} leads out of {self.root}"))
        return name

    @property
    def is_remote(self) -> bool:
        """True where some are objects in stores, which the core cannot open."""
        return self.objects is not None

    def object(self, number: int) -> StoredPath | None:
        """Return one of the files as an object: its address, and its content as it is pinned; None for a local one.

        Raises as `path` does.
        """
        name = self._checked(number)
        return None if self.objects is None or not name else self.objects.object(number, name)

    def version(self, number: int) -> Version:
        """Return what changes with a file's content; None for a missing file. Raises as `path` does, and ReadError."""
        try:
            stored = self.object(number)
            if stored is not None:
                return stored.content_name()
        except NotFoundError:
            return None
        path = self.path(number)
        try:
            status = os.stat(path)
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns

    def content_name(self, number: int) -> str | None:
        """Return a name that changes with a file's content, without reading all of it; None where it is unknown.

        A copy of a local file has the same name. Raises as `path` does, and ReadError.
        """
        stored = self.object(number)
        if stored is not None:
            return stored.content_name()
        path = self.path(number)
        return identify(OpenFile(path)).to_json() if path else None

    def open(self, number: int) -> ReadableFile:
        """Return a file or an object, open. Raises as `path` does, and ReadError for a local file."""
        stored = self.object(number)
        return OpenFile(self.path(number)) if stored is None else stored.open()


def native_paths(files: ColumnFiles) -> Paths:
    """Return the same files for the core. Their names have to be in memory."""
    names = files.names
    assert isinstance(names, StringColumn), "names that stay in a file are located batch by batch"
    return Paths(os.fsencode(files.root), names.blob, names.offsets, keep_open=files.archives, inside=files.inside)


def outside_root_text(why: str) -> str:
    """Return a message with what to do about a path that leads out of the root."""
    return f"{why}. Correct it, or open without root=, and absolute paths are taken as they are"


class HeldParts(NamedTuple):
    """Parts of files in memory, and which of them each sample of a batch lies in."""

    data: list[Buffer]
    first: list[int]
    """First byte of each part in its file."""
    part_of: Ints
    """Part of each sample; -1: in none."""
    unpacked: list[dict[int, Any]]
    """What a column of packed values has found in each part, by the unit's number; lives as long as the part does."""


class PackedValues(Protocol):
    """Ranges of stored bytes in which a batch's values are found once they are read."""

    @property
    def start(self) -> Ints:
        """First byte that is read, in the file."""
        ...

    @property
    def stop(self) -> Ints:
        """Byte after the last one that is read."""
        ...

    def unpacked(self, at: Location, held: HeldParts) -> tuple[Location, HeldParts]:
        """Return where the values lie in what is held. Raises DatasetError where it is damaged."""
        ...

    def read(self, file: ReadableFile, at: Location, known: dict[int, Any]) -> bytes | None:
        """Return the value of the one sample that is located; None where it is null. Raises as reading does.

        `known`: what has been found in the file, by the unit's number; more is added.
        """
        ...


class ZipLocation(NamedTuple):
    """Entries of zips' central directories for a batch of members; every array has one entry a sample."""

    packed: Ints
    """Bytes in the zip."""
    room: Ints
    """Bytes from the local header to where the next one begins: data that goes on would overlap it."""
    method: Checks
    crc: Checks
    flags: Checks


_TAR_HEADER_BYTES = 512
_ZIP_HEADER_BYTES = 30 + 2 * 65_535
"""Most bytes of a local header: name and extra field have 16-bit lengths."""


class Location(NamedTuple):
    """Location of the bytes of a batch of samples; every array has one entry a sample."""

    path_id: Ints
    """Number in the column's `files`."""
    offset: Ints | None
    """First byte in that file, in a zip of the local header; None: all begin at 0."""
    length: Ints | None
    """Bytes; `ABSENT` where the sample has none, `MISSING` where it is not there; None: all are whole files."""
    check: Checks | None
    """`tar_header_check` of the 512 bytes before `offset`, `local_header_check` of a zip's; None: nothing to check."""
    zipped: ZipLocation | None = None
    """None: bytes lie there as they are. Else offset, length and check are given."""
    files: ColumnFiles | None = None
    """What `path_id` counts in, where it is not the column's `files`: those of this batch alone."""
    packed: PackedValues | None = None
    """None: offset and length are those of the values. Else they are estimates until the bytes are read."""

    def stored(self, most_bytes: int | None = None) -> tuple[Ints, Ints] | None:
        """Return the first byte and the end of what is stored, with the header that is checked; None for whole files.

        `most_bytes`: the first bytes of each sample alone. What is compressed is whole, up to the longest header.
        Samples without bytes have a range that means nothing.
        """
        if self.offset is None or self.length is None:
            return None
        if self.packed is not None:
            return self.packed.start, self.packed.stop
        if self.zipped is not None:
            return self.offset, self.offset + np.minimum(self.zipped.room, _ZIP_HEADER_BYTES + self.zipped.packed)
        length = self.length if most_bytes is None else np.minimum(self.length, most_bytes)
        start = self.offset if self.check is None else self.offset - _TAR_HEADER_BYTES
        return start, self.offset + np.maximum(length, 0)

    def native(self, paths: Paths | None, held: HeldParts | None = None) -> Ranges:
        """Return the same for the core; `paths` are the column's files, for batches without files of their own.

        `held`: parts of the files that are in memory, and are read from there; packed values are in such parts alone.
        Raises DatasetError for packed values that are damaged.
        """
        if self.packed is not None:
            assert held is not None, "packed values lie in objects"
            at, held = self.packed.unpacked(self, held)
            return at.native(paths, held)
        own = paths if self.files is None else native_paths(self.files)
        assert own is not None, "names that lie in memory are the column's, others come with the batch"
        return Ranges(own, self.path_id, self.offset, self.length, self.check, self.zipped, held and held[:3])
