"""Index of a zip: its members, their places and the samples they make."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from headrace._core import read_zip_directory
from headrace.data.archives.archive_columns import MemberData, index_samples, load_samples
from headrace.data.archives.archive_members import GroupedMembers, JoinedArray, NameTable
from headrace.data.archives.zip_reading import ZipEntry
from headrace.data.columns import ABSENT, ColumnPart, Location, ZipLocation
from headrace.data.storage import safetensors
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.storage.sidecar import FileIdentity, Sidecar, identify_archive, open_sidecar
from headrace.data.storage.strings import StringColumn
from headrace.errors import DatasetError, ReadError

# -- from data/zip_member.py: One member of a zip, as the index has it.


class ZipMember(NamedTuple):
    """What the index knows of a member, under the names that `zipfile.ZipInfo` and `tarfile.TarInfo` have for it."""

    name: str
    file_size: int
    """Bytes of data."""
    compress_size: int
    """Bytes of it in the zip."""
    compress_type: int
    """`zipfile.ZIP_STORED`, `ZIP_DEFLATED`, …"""
    CRC: int  # as zipfile spells it
    header_offset: int
    """First byte of its local header in the zip."""
    flag_bits: int
    number: int
    """Its position among the members of the zip."""

    @property
    def filename(self) -> str:
        return self.name

    @property
    def size(self) -> int:
        return self.file_size

    def is_dir(self) -> bool:
        return self.name.endswith("/")

    def isdir(self) -> bool:
        return self.is_dir()

    def isfile(self) -> bool:
        return not self.is_dir()


# -- from data/zip_members.py: Every member of one zip, as its central directory has it, found by name in O(1).


@dataclass(frozen=True, eq=False)
class ZipMembers:
    """An entry a member in each array, in the order of the central directory."""

    names: NameTable
    size: npt.NDArray[np.int64]
    packed: npt.NDArray[np.int64]
    """Bytes in the zip."""
    method: npt.NDArray[np.uint32]
    crc: npt.NDArray[np.uint32]
    offset: npt.NDArray[np.int64]
    """Of the local header."""
    flags: npt.NDArray[np.uint32]
    check: npt.NDArray[np.uint32]
    """`local_header_check` of what the local header must say."""
    end: npt.NDArray[np.int64]
    """Where the next member's local header begins, or the central directory: data that goes on would overlap it."""
    _views: tuple[memoryview, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Single entries come out of a memoryview several times as fast as out of an array.
        columns = (getattr(self, name).data for name in _COLUMNS)
        object.__setattr__(self, "_views", tuple(columns))

    def __len__(self) -> int:
        return len(self.names)

    def member(self, number: int) -> ZipMember:
        size, packed, method, crc, offset, flags, *_ = self._views
        return ZipMember(
            self.names[number],
            size[number],
            packed[number],
            method[number],
            crc[number],
            offset[number],
            flags[number],
            number,
        )

    def entry(self, number: int) -> ZipEntry:
        size, packed, method, crc, offset, flags, check, end = self._views
        at = offset[number]
        return ZipEntry(
            at,
            packed[number],
            size[number],
            end[number] - at,
            method[number],
            crc[number],
            flags[number],
            check[number],
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ZipMembers, (self.names, *(getattr(self, name) for name in _COLUMNS))

    def find(self, name: str) -> int | None:
        """The last member of exactly that name."""
        return self.names.find(name)

    @property
    def first_name(self) -> str | None:
        return self.names[0] if len(self) else None

    def find_files(self, paths: StringColumn, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The position of the file that each of the paths numbered `which` names; -1 where there is none. A leading
        "./" makes no difference."""
        found = self.names.find_paths(paths, which)
        there = np.flatnonzero(found >= 0)
        found[there[are_folders(self.names.strings.take(found[there]))]] = -1
        return found

    def fit(self, zip_bytes: int) -> bool:
        """Whether all members lie in a zip of that size."""
        inside = safetensors.ranges_fit(self.offset, self.packed, first=0, end=zip_bytes)
        return bool((inside & (self.size >= 0) & (self.end >= self.offset) & (self.end <= zip_bytes)).all())

    def to_arrays(self) -> Arrays:
        return {**self.names.to_arrays(), **{name: getattr(self, name) for name in _COLUMNS}}

    @classmethod
    def from_arrays(cls, arrays: Arrays, zip_bytes: int) -> ZipMembers:
        """The inverse of `to_arrays`, from untrusted input: raises InvalidFileError unless all fits `zip_bytes`."""
        names = NameTable.from_arrays(arrays)
        columns = {name: safetensors.checked_array(arrays, name, dtype, len(names)) for name, dtype in _COLUMNS.items()}
        members = cls(names, **columns)
        if not members.fit(zip_bytes):
            raise InvalidFileError("a member lies outside the zip")
        return members

    @classmethod
    def read(cls, path: str) -> ZipMembers:
        """From the central directory of the zip at `path`. Raises OSError, or ValueError if it is no zip or damaged."""
        names, name_offsets, size, packed, method, crc, offset, flags, check, directory_at = read_zip_directory(
            os.fsencode(path)
        )
        table = NameTable.build(StringColumn(names, name_offsets))
        return cls(table, size, packed, method, crc, offset, flags, check, _ends(offset, directory_at))


_COLUMNS: dict[str, type[np.generic]] = {
    "size": np.int64,
    "packed": np.int64,
    "method": np.uint32,
    "crc": np.uint32,
    "offset": np.int64,
    "flags": np.uint32,
    "check": np.uint32,
    "end": np.int64,
}


def are_folders(names: StringColumn) -> npt.NDArray[np.bool_]:
    """Which names are those of folders: they end in a slash."""
    found = np.zeros(len(names), np.bool_)
    named = np.flatnonzero(names.lengths() > 0)
    found[named] = names.blob[names.offsets.view(np.int64)[1:][named] - 1] == ord("/")
    return found


def _ends(offset: npt.NDArray[np.int64], directory_at: int) -> npt.NDArray[np.int64]:
    """For each offset the next one by value. Equal ones end where they begin: members that lie on each other."""
    by_offset = np.argsort(offset, kind="stable")
    ends = np.empty_like(offset)
    ends[by_offset] = np.append(offset[by_offset][1:], directory_at)
    return ends


# -- from data/zip_data.py: Where the data of each member of several zips lies, and in which form.


Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


class ZipArrays(Protocol):
    """An entry a member of one zip: see `ZipMembers`."""

    @property
    def offset(self) -> Ints: ...
    @property
    def size(self) -> Ints: ...
    @property
    def packed(self) -> Ints: ...
    @property
    def end(self) -> Ints: ...
    @property
    def method(self) -> Words: ...
    @property
    def crc(self) -> Words: ...
    @property
    def flags(self) -> Words: ...
    @property
    def check(self) -> Words: ...


@dataclass(frozen=True, eq=False)
class ZipData(MemberData):
    offset: JoinedArray[np.int64]
    size: JoinedArray[np.int64]
    packed: JoinedArray[np.int64]
    end: JoinedArray[np.int64]
    method: JoinedArray[np.uint32]
    crc: JoinedArray[np.uint32]
    flags: JoinedArray[np.uint32]
    check: JoinedArray[np.uint32]

    @classmethod
    def of(cls, zips: Sequence[ZipArrays]) -> ZipData:
        return cls(
            JoinedArray(one.offset for one in zips),
            JoinedArray(one.size for one in zips),
            JoinedArray(one.packed for one in zips),
            JoinedArray(one.end for one in zips),
            JoinedArray(one.method for one in zips),
            JoinedArray(one.crc for one in zips),
            JoinedArray(one.flags for one in zips),
            JoinedArray(one.check for one in zips),
        )

    def locate(self, archive: Ints, member: Ints) -> Location:
        offset = self.offset.take(archive, member)
        zipped = ZipLocation(
            self.packed.take(archive, member),
            self.end.take(archive, member) - offset,
            self.method.take(archive, member),
            self.crc.take(archive, member),
            self.flags.take(archive, member),
        )
        return Location(archive, offset, self._sizes(archive, member), self.check.take(archive, member), zipped)

    def parts(self, archive: Ints, member: Ints) -> Iterator[ColumnPart]:
        """Of the data alone, so that a zip packed again at another level is the same dataset."""
        yield self._sizes(archive, member), "<i8"
        yield self.crc.take(archive, member), "<u4"

    def _sizes(self, archive: Ints, member: Ints) -> Ints:
        size = self.size.take(archive, member)
        size[member < 0] = ABSENT
        return size


# -- from data/zip_index.py: The samples of one zip: which it holds, and where each of their members lies.


IndexInts = npt.NDArray[np.int64]
IndexWords = npt.NDArray[np.uint32]


@dataclass(frozen=True, eq=False)
class ZipIndex:
    samples: GroupedMembers
    digest: str
    """`digest_of` these samples alone."""
    names: StringColumn
    """Of all members of the zip, as each of the following arrays is: see `ZipMembers`."""
    offset: IndexInts
    size: IndexInts
    packed: IndexInts
    end: IndexInts
    method: IndexWords
    crc: IndexWords
    flags: IndexWords
    check: IndexWords

    @classmethod
    def from_arrays(cls, path: str, arrays: Arrays, outline: str, zip_bytes: int) -> ZipIndex:
        """What `build_index` made of the zip at `path`, from untrusted input.

        Raises InvalidFileError unless all fits `zip_bytes`, and DatasetError where its members make no samples.
        """
        members = ZipMembers.from_arrays(arrays, zip_bytes)
        samples, digest = load_samples(path, arrays, outline, members=len(members))
        # Without the hash table: samples are not looked up by name.
        return cls(
            samples,
            digest,
            members.names.strings,
            members.offset,
            members.size,
            members.packed,
            members.end,
            members.method,
            members.crc,
            members.flags,
            members.check,
        )


# -- from data/zip_sidecar.py: The index of a zip, kept in a sidecar: it serves those who want samples and those who
# want members by name.


ZIP_INDEX_FORMAT = "headrace zip index 3"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""


def open_zip_index(path: str, *, cache: str | None) -> ZipIndex:
    """The samples of the zip at `path`. Raises ReadError, or DatasetError if it is no zip or has no samples' form."""

    def load(arrays: Arrays, outline: str, zip_bytes: int) -> ZipIndex:
        return ZipIndex.from_arrays(path, arrays, outline, zip_bytes)

    identity = identify_archive(path)
    return open_sidecar(Sidecar(ZIP_INDEX_FORMAT, _build_zip_index, load), path, identity, cache=cache)


def open_zip_members(path: str, identity: FileIdentity, *, cache: str | None) -> ZipMembers:
    """Every member of the zip at `path`, which has this `identity`. Raises ReadError, or DatasetError if it is none."""

    def load(arrays: Arrays, _: str, zip_bytes: int) -> ZipMembers:
        return ZipMembers.from_arrays(arrays, zip_bytes)

    return open_sidecar(Sidecar(ZIP_INDEX_FORMAT, _build_zip_index, load), path, identity, cache=cache)


def build_zip_index(path: str) -> tuple[Arrays, str]:
    """The central directory and its samples as arrays, and the samples' outline. Raises ReadError or DatasetError."""
    members = _read_directory(path)
    names = members.names.strings
    is_folder = are_folders(names)
    types = np.where(is_folder, _FOLDER, _FILE)
    skipped = {"directories": int(np.count_nonzero(is_folder))}
    samples, outline = index_samples(path, names, types, skipped, ZipData.of([members]))
    return members.to_arrays() | samples, outline


_FILE, _FOLDER = np.uint8(ord("0")), np.uint8(ord("5"))
"""As a tar has it, which the layout of samples is made for."""


def _read_directory(path: str) -> ZipMembers:
    try:
        members = ZipMembers.read(path)
    except OSError as error:
        raise ReadError(f"{error}. Check its permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `unzip -t`, and copy or write it again") from error
    if not members.fit(os.path.getsize(path)):
        raise DatasetError(
            f"{path}: its central directory points outside the file. Check it with `unzip -t`, and copy or write it "
            f"again"
        )
    return members


def _build_zip_index(path: str, _: str | None) -> tuple[Arrays, str]:
    """In memory, however large the archive is: a member takes less than a hundred bytes."""
    return build_zip_index(path)
