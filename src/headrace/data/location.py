"""Locations of a batch's bytes: numbered files, local or in stores, and ranges in them."""

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
"""Value that changes with a file's content: size and modification time of a local file, a hash of an object's address
and metadata, or a hash of content in memory; None: unknown."""

ABSENT = -1
"""Length of a member that a sample does not have."""
MISSING = -2
"""Length for a sample that names a member that no archive has."""


class StoredObjects(Protocol):
    """Objects in stores, looked up by a column's file numbers and names."""

    def object(self, number: int, name: bytes) -> StoredPath | None:
        """Return the object for a number and a name, pinned to its content if known; None: a local file."""
        ...


@dataclass(frozen=True, eq=False)
class ListedObjects:
    """Objects by number, such as archives in stores."""

    paths: Sequence[StoredPath | None]
    """Paths by number; None for a local file."""

    def object(self, number: int, _: bytes) -> StoredPath | None:
        return self.paths[number]


@dataclass(frozen=True, eq=False)
class ColumnFiles:
    """Numbered files of a column: names in a folder, without an object per file. An empty name means no file."""

    root: str
    """Absolute folder, or address of a prefix in a store; `names` are relative to it."""
    names: Strings
    archives: bool
    """True if each file is read repeatedly and so stays open: a tar, not a loose image."""
    inside: bool = False
    """True if a name may not lead out of the root; otherwise absolute names are allowed."""
    objects: StoredObjects | None = None
    """Objects for the names; None: local files."""

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> bytes:
        """Return a path, empty for no file. Raises OutsideRootError, and ReadError for an invalid file name."""
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
        """True if some files are objects in stores, which the core cannot open."""
        return self.objects is not None

    def object(self, number: int) -> StoredPath | None:
        """Return a file as an object, with its address and pinned content; None for a local file.

        Raises as `path` does.
        """
        name = self._checked(number)
        return None if self.objects is None or not name else self.objects.object(number, name)

    def version(self, number: int) -> Version:
        """Return a file's version; None for a missing file. Raises as `path` does, and ReadError."""
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
        """Return a name that changes with a file's content, without reading the whole file; None if unknown.

        A copy of a local file has the same name. Raises as `path` does, and ReadError.
        """
        stored = self.object(number)
        if stored is not None:
            return stored.content_name()
        path = self.path(number)
        return identify(OpenFile(path)).to_json() if path else None

    def open(self, number: int) -> ReadableFile:
        """Open a file or an object. Raises as `path` does, and ReadError for a local file."""
        stored = self.object(number)
        return OpenFile(self.path(number)) if stored is None else stored.open()


def native_paths(files: ColumnFiles) -> Paths:
    """Return the same files for the core. Requires names in memory."""
    names = files.names
    assert isinstance(names, StringColumn), "names that stay in a file are located batch by batch"
    return Paths(os.fsencode(files.root), names.blob, names.offsets, keep_open=files.archives, inside=files.inside)


def outside_root_text(why: str) -> str:
    """Return a message with advice about a path that leads out of the root."""
    return f"{why}. Correct it, or open without root=, and absolute paths are taken as they are"


class HeldParts(NamedTuple):
    """Parts of files in memory, and the part with each sample of a batch."""

    data: list[Buffer]
    first: list[int]
    """First byte of each part in its file."""
    part_of: Ints
    """Part of each sample; -1: none."""
    unpacked: list[dict[int, Any]]
    """Unpacked values of a packed column for each part, by unit number; they live as long as the part."""


class PackedValues(Protocol):
    """Stored byte ranges that must be read to locate a batch's values."""

    @property
    def start(self) -> Ints:
        """First byte to read in the file."""
        ...

    @property
    def stop(self) -> Ints:
        """End (exclusive) of the bytes to read."""
        ...

    def unpacked(self, at: Location, held: HeldParts) -> tuple[Location, HeldParts]:
        """Return the locations of values in held parts. Raises DatasetError for damaged data."""
        ...

    def read(self, file: ReadableFile, at: Location, known: dict[int, Any]) -> bytes | None:
        """Return the value of the one located sample; None for null. Raises as reading does.

        `known` maps unit numbers to the values unpacked so far; the call adds more.
        """
        ...


class ZipLocation(NamedTuple):
    """Central-directory entries for a batch of zip members; every array has one entry per sample."""

    packed: Ints
    """Compressed bytes in the zip."""
    room: Ints
    """Bytes from the local header to the next one; longer data would overlap it."""
    method: Checks
    crc: Checks
    flags: Checks


_TAR_HEADER_BYTES = 512
_ZIP_HEADER_BYTES = 30 + 2 * 65_535
"""Upper bound on a local header's size: name and extra field have 16-bit lengths."""


class Location(NamedTuple):
    """Location of the bytes of a batch of samples; every array has one entry per sample."""

    path_id: Ints
    """File number in the column's `files`."""
    offset: Ints | None
    """First byte in the file (in a zip: of the local header); None: all samples begin at 0."""
    length: Ints | None
    """Bytes; `ABSENT` for a sample without the member, `MISSING` if its file is missing; None: whole files."""
    check: Checks | None
    """`tar_header_check` of the 512 bytes before `offset`, `local_header_check` for a zip; None: unchecked."""
    zipped: ZipLocation | None = None
    """Zip entries; None: bytes are stored without compression. If given, offset, length and check are too."""
    files: ColumnFiles | None = None
    """Files that `path_id` refers to, if not the column's `files`: only files of this batch."""
    packed: PackedValues | None = None
    """Packed ranges; None: offset and length are exact. Otherwise they are estimates until the bytes are read."""
    held: HeldParts | None = None
    """Memory with the bytes; None: they are in files."""
    prefix: npt.NDArray[np.uint8] | None = None
    """[N, k]: header of each value, which the file does not have; `length` does not count it. None: no header."""

    def stored(self, most_bytes: int | None = None) -> tuple[Ints, Ints] | None:
        """Return the first byte and the end of each stored range, checked headers included; None for whole files.

        `most_bytes` limits each sample to its first bytes. Compressed members stay whole, with the longest possible
        header. Ranges of samples without bytes are meaningless.
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
        """Return this location for the core; `paths` are the column's files, for batches without their own files.

        `held` has parts of the files in memory, and reads go there; packed values need it. Raises DatasetError for
        damaged packed values.
        """
        held = self.held if held is None else held
        if self.packed is not None:
            assert held is not None, "packed values lie in objects"
            at, held = self.packed.unpacked(self, held)
            return at.native(paths, held)
        own = paths if self.files is None else native_paths(self.files)
        assert own is not None, "names that lie in memory are the column's, others come with the batch"
        return Ranges(
            own, self.path_id, self.offset, self.length, self.check, self.zipped, held and held[:3], self.prefix
        )
