"""Index of a tar: its members, their places and the samples they make."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from headrace._core import scan_tar
from headrace.data.archives.archive_columns import MemberData, index_samples, load_samples
from headrace.data.archives.archive_members import END, GroupedMembers, JoinedArray, NameTable
from headrace.data.columns import ABSENT, ColumnPart, Location
from headrace.data.storage import safetensors
from headrace.data.storage.safetensors import Arrays, InvalidFileError
from headrace.data.storage.sidecar import FileIdentity, Sidecar, identify_archive, open_sidecar
from headrace.data.storage.strings import StringColumn
from headrace.errors import DatasetError, ReadError

# -- from data/tar_member.py: One member of a tar, as the index has it.


# Type flags of POSIX ustar, and GNU's for sparse files.
_FILE, HARD_LINK, SYMBOLIC_LINK, _CHARACTER_DEVICE = b"0", b"1", b"2", b"3"
_BLOCK_DEVICE, _FOLDER, _FIFO, _CONTIGUOUS_FILE = b"4", b"5", b"6", b"7"
_SPARSE_FILE = b"S"
_REGULAR = (_FILE, _CONTIGUOUS_FILE, _SPARSE_FILE)


class TarMember(NamedTuple):
    """What the index knows of a member, under the names that `tarfile.TarInfo` has for it."""

    name: str
    size: int
    """Bytes of data; 0 for links, folders and devices."""
    offset_data: int
    """First byte of its data in the tar."""
    type: bytes
    """As `tarfile.REGTYPE`, `DIRTYPE`, …; sparse files of any form are `GNUTYPE_SPARSE`."""
    linkname: str
    """What a link names; empty for all else."""
    number: int
    """Its position among the members of the tar."""

    @property
    def path(self) -> str:
        return self.name

    @property
    def linkpath(self) -> str:
        return self.linkname

    def isreg(self) -> bool:
        return self.type in _REGULAR

    def isfile(self) -> bool:
        return self.isreg()

    def isdir(self) -> bool:
        return self.type == _FOLDER

    def issym(self) -> bool:
        return self.type == SYMBOLIC_LINK

    def islnk(self) -> bool:
        return self.type == HARD_LINK

    def ischr(self) -> bool:
        return self.type == _CHARACTER_DEVICE

    def isblk(self) -> bool:
        return self.type == _BLOCK_DEVICE

    def isfifo(self) -> bool:
        return self.type == _FIFO

    def isdev(self) -> bool:
        return self.ischr() or self.isblk() or self.isfifo()

    def issparse(self) -> bool:
        return self.type == _SPARSE_FILE


# -- from data/tar_members.py: Every member of one tar: its name, kind and place, found by name in O(1).


_HEADER_BYTES = 512
_LINKS = HARD_LINK + SYMBOLIC_LINK
_IN_ONE_PIECE = [ord("0"), ord("7")]
"""Types of regular files that are not sparse."""
MAX_LINKS = 40
"""Links that lead from one to the next before they count as a circle, as Linux has it."""
_TYPES = tuple(bytes((flag,)) for flag in range(256))


@dataclass(frozen=True, eq=False)
class TarMembers:
    """An entry a member in each array, in the order of the tar."""

    names: NameTable
    type: npt.NDArray[np.uint8]
    offset: npt.NDArray[np.int64]
    size: npt.NDArray[np.int64]
    check: npt.NDArray[np.uint32]
    """Identity of the header block before the data."""
    links: StringColumn
    """Targets of the links alone."""
    link_of: npt.NDArray[np.int64]
    """The member that each of `links` belongs to, rising."""
    _views: tuple[memoryview, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Single entries come out of a memoryview three times as fast as out of an array.
        views = (self.type.data, self.offset.data, self.size.data, self.check.data)
        object.__setattr__(self, "_views", views)

    def __reduce__(self) -> tuple[Any, ...]:
        return TarMembers, (self.names, self.type, self.offset, self.size, self.check, self.links, self.link_of)

    def __len__(self) -> int:
        return len(self.names)

    @property
    def first_name(self) -> str | None:
        return self.names[0] if len(self) else None

    def member(self, number: int) -> TarMember:
        types, offsets, sizes, _ = self._views
        kind = types[number]
        link = self._link(number) if kind in _LINKS else ""
        return TarMember(self.names[number], sizes[number], offsets[number], _TYPES[kind], link, number)

    def header_check(self, number: int) -> int:
        check: int = self._views[3][number]
        return check

    def find(self, name: str, before: int = END) -> int | None:
        """The last member of that name (ahead of `before`), as `tarfile` takes it; where there is no "a", "./a" is
        meant, and the other way round."""
        at = self.names.find(name, before)
        if at is not None:
            return at
        bare = name = name.rstrip("/")
        while bare.startswith("./"):
            bare = bare[2:]
        return self.names.find_any((name, bare, f"./{bare}"), before)

    def find_target(self, member: TarMember) -> int | None:
        """The member that a link names, as `tarfile` takes it: a symbolic one relative to its own folder and anywhere
        in the tar, a hard one ahead of itself."""
        if member.islnk():
            return self.find(posixpath.normpath(member.linkname), member.number)
        folder = posixpath.dirname(member.name)
        return self.find(posixpath.normpath(f"{folder}/{member.linkname}" if folder else member.linkname))

    def find_files(self, paths: StringColumn, which: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """The position of the regular file that each of the paths numbered `which` leads to, through links as well; -1
        where there is none, or one that is sparse. A leading "./" makes no difference."""
        found = self.names.find_paths(paths, which)
        there = np.flatnonzero(found >= 0)
        for at in there[~np.isin(self.type[found[there]], _IN_ONE_PIECE)].tolist():
            found[at] = self._linked_file(int(found[at]))
        return found

    def _linked_file(self, number: int) -> int:
        for _ in range(MAX_LINKS):
            member = self.member(number)
            if member.type[0] in _IN_ONE_PIECE:
                return number
            target = self.find_target(member) if member.type in _LINKS else None
            if target is None:
                break
            number = target
        return -1

    def _link(self, number: int) -> str:
        at = int(np.searchsorted(self.link_of, number))
        return self.links[at] if at < len(self.link_of) and self.link_of[at] == number else ""

    def to_arrays(self) -> Arrays:
        return {
            **self.names.to_arrays(),
            "members.type": self.type,
            "members.offset": self.offset,
            "members.size": self.size,
            "members.check": self.check,
            "links.blob": self.links.blob,
            "links.offsets": self.links.offsets,
            "links.of": self.link_of,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays, tar_bytes: int) -> TarMembers:
        """The inverse of `to_arrays`, from untrusted input: raises InvalidFileError unless all fits `tar_bytes`."""
        names = NameTable.from_arrays(arrays)
        count = len(names)
        offset = safetensors.checked_array(arrays, "members.offset", np.int64, count)
        size = safetensors.checked_array(arrays, "members.size", np.int64, count)
        if not safetensors.ranges_lie_in(offset, size, first=_HEADER_BYTES, end=tar_bytes):
            raise InvalidFileError("a member lies outside the tar")
        link_of = safetensors.checked_indices(arrays, "links.of", count)
        return cls(
            names,
            safetensors.checked_array(arrays, "members.type", np.uint8, count),
            offset,
            size,
            safetensors.checked_array(arrays, "members.check", np.uint32, count),
            safetensors.checked_strings(arrays, "links", len(link_of)),
            link_of,
        )


# -- from data/tar_data.py: Where the data of each member of several tars lies.


Ints = npt.NDArray[np.int64]


class TarArrays(Protocol):
    """An entry a member of one tar."""

    @property
    def offset(self) -> Ints:
        """First byte of its data."""
        ...

    @property
    def size(self) -> Ints: ...

    @property
    def check(self) -> npt.NDArray[np.uint32]:
        """Identity of the header block before it."""
        ...


@dataclass(frozen=True, eq=False)
class TarData(MemberData):
    offset: JoinedArray[np.int64]
    size: JoinedArray[np.int64]
    check: JoinedArray[np.uint32]

    @classmethod
    def of(cls, tars: Sequence[TarArrays]) -> TarData:
        return cls(
            JoinedArray(tar.offset for tar in tars),
            JoinedArray(tar.size for tar in tars),
            JoinedArray(tar.check for tar in tars),
        )

    def locate(self, archive: Ints, member: Ints) -> Location:
        length = self.size.take(archive, member)
        length[member < 0] = ABSENT
        return Location(archive, self.offset.take(archive, member), length, self.check.take(archive, member))

    def parts(self, archive: Ints, member: Ints) -> Iterator[ColumnPart]:
        at = self.locate(archive, member)
        yield at.length, "<i8"
        yield at.check, "<u4"


# -- from data/index.py: The samples of one tar: which it holds, and where each of their members begins.


@dataclass(frozen=True, eq=False)
class TarIndex:
    samples: GroupedMembers
    digest: str
    """`digest_of` these samples alone."""
    names: StringColumn
    """Of all members of the tar, as each of the following arrays is."""
    offset: npt.NDArray[np.int64]
    """First byte of the data in the tar."""
    size: npt.NDArray[np.int64]
    check: npt.NDArray[np.uint32]
    """Identity of the header block before the data."""

    @classmethod
    def from_arrays(cls, path: str, arrays: Arrays, outline: str, tar_bytes: int) -> TarIndex:
        """What `build_index` made of the tar at `path`, from untrusted input.

        Raises InvalidFileError unless all fits `tar_bytes`, and DatasetError where its members make no samples.
        """
        members = TarMembers.from_arrays(arrays, tar_bytes)
        samples, digest = load_samples(path, arrays, outline, members=len(members))
        # Without the hash table: samples are not looked up by name.
        return cls(samples, digest, members.names.strings, members.offset, members.size, members.check)


# -- from data/indexing.py: Builds the index of one tar: a scan of its headers gives its members, and these are
# grouped into samples.


def build_tar_index(path: str) -> tuple[Arrays, str]:
    """Members and samples as arrays, and the outline of the samples.

    Raises ReadError, or DatasetError if it is no tar, is damaged, or is beyond a limit.
    """
    members, skipped = _scan_tar(path)
    samples, outline = index_samples(path, members.names.strings, members.type, skipped, TarData.of([members]))
    return members.to_arrays() | samples, outline


def _scan_tar(path: str) -> tuple[TarMembers, dict[str, int]]:
    try:
        names, name_offsets, kind, offset, size, check, links, link_offsets, link_of, skipped = scan_tar(
            os.fsencode(path)
        )
        table = NameTable.build(StringColumn(names, name_offsets))
    except OSError as error:
        raise ReadError(f"{error}. Check the file's permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `tar -tf`, and copy or write it again") from error
    return TarMembers(table, kind, offset, size, check, StringColumn(links, link_offsets), link_of), skipped


# -- from data/tar_sidecar.py: The index of a tar, kept in a sidecar: one scan serves those who want samples and those
# who want members by name.


TAR_INDEX_FORMAT = "headrace tar index 4"
"""Raise the number whenever the meaning of a sidecar changes: others are rebuilt."""


def open_tar_index(path: str, *, cache: str | None) -> TarIndex:
    """The samples of the tar at `path`. Raises ReadError, or DatasetError if it is no tar or has no samples' form."""

    def load(arrays: Arrays, outline: str, tar_bytes: int) -> TarIndex:
        return TarIndex.from_arrays(path, arrays, outline, tar_bytes)

    identity = identify_archive(path)
    return open_sidecar(Sidecar(TAR_INDEX_FORMAT, _build_tar_index, load), path, identity, cache=cache)


def open_tar_members(path: str, identity: FileIdentity, *, cache: str | None) -> TarMembers:
    """Every member of the tar at `path`, which has this `identity`. Raises ReadError, or DatasetError if it is none."""

    def load(arrays: Arrays, _: str, tar_bytes: int) -> TarMembers:
        return TarMembers.from_arrays(arrays, tar_bytes)

    return open_sidecar(Sidecar(TAR_INDEX_FORMAT, _build_tar_index, load), path, identity, cache=cache)


def _build_tar_index(path: str, _: str | None) -> tuple[Arrays, str]:
    """In memory, however large the archive is: a member takes less than a hundred bytes."""
    return build_tar_index(path)
