"""Index of a tar: its members, the ranges of their bytes, and the targets of its links."""

from __future__ import annotations

import os
import posixpath
import tarfile
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headrace._core import scan_remote_tar, scan_tar
from headrace.data.archives.archive_index import ArchiveKind, index_arrays
from headrace.data.archives.archive_members import END, ArchiveMembers, NameTable
from headrace.data.archives.tar_lookahead import scanning
from headrace.data.remote.remote_file import ObjectPath
from headrace.data.storage.open_file import FilePath
from headrace.data.storage.safetensors import Arrays, checked_indices, checked_strings, ranges_lie_in
from headrace.data.storage.strings import Ints, StringColumn
from headrace.errors import DatasetError, HeadraceError, ReadError

_REGULAR = (tarfile.REGTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE)
_TYPES = tuple(bytes((flag,)) for flag in range(256))
_LINKS = tarfile.LNKTYPE + tarfile.SYMTYPE
_IN_ONE_PIECE = [*tarfile.REGTYPE, *tarfile.CONTTYPE]

_HEADER_BYTES = 512
MAX_LINKS = 40
"""Longest chain of links to follow, as on Linux; a longer chain counts as a cycle."""


class TarMember(NamedTuple):
    """One member of a tar, with the attributes and methods of `tarfile.TarInfo`."""

    name: str
    size: int
    """Bytes of data; 0 for links, folders and devices."""
    offset_data: int
    """First byte of the data in the tar."""
    type: bytes
    """`tarfile.REGTYPE`, `DIRTYPE`, …; sparse files of any form are `GNUTYPE_SPARSE`."""
    linkname: str
    """Target of a link; empty for other members."""
    number: int
    """Index in the tar."""

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
        return self.type == tarfile.DIRTYPE

    def issym(self) -> bool:
        return self.type == tarfile.SYMTYPE

    def islnk(self) -> bool:
        return self.type == tarfile.LNKTYPE

    def ischr(self) -> bool:
        return self.type == tarfile.CHRTYPE

    def isblk(self) -> bool:
        return self.type == tarfile.BLKTYPE

    def isfifo(self) -> bool:
        return self.type == tarfile.FIFOTYPE

    def isdev(self) -> bool:
        return self.ischr() or self.isblk() or self.isfifo()

    def issparse(self) -> bool:
        return self.type == tarfile.GNUTYPE_SPARSE


_COLUMNS: dict[str, type[np.generic]] = {"type": np.uint8, "offset": np.int64, "size": np.int64, "check": np.uint32}


@dataclass(frozen=True, eq=False)
class TarMembers(ArchiveMembers):
    """All members of a tar, in order, as arrays with one entry per member."""

    columns = _COLUMNS
    located = ("offset", "size", "check")
    proof = "check"
    prefix = "members."

    type: npt.NDArray[np.uint8]
    offset: Ints
    """First byte of the data."""
    size: Ints
    check: npt.NDArray[np.uint32]
    """`tar_header_check` of the header block before the data."""
    links: StringColumn
    """Targets of the links only."""
    link_of: Ints
    """Member index of each of `links`, ascending."""

    def member(self, number: int) -> TarMember:
        types, offsets, sizes, _ = self.views
        kind = types[number]
        link = self._link(number) if kind in _LINKS else ""
        return TarMember(self.names[number], sizes[number], offsets[number], _TYPES[kind], link, number)

    def header_check(self, number: int) -> int:
        check: int = self.views[3][number]
        return check

    def find(self, name: str, before: int = END) -> int | None:
        """Return the last member of that name before `before`, as `tarfile` does.

        If there is no "a", look for "./a", and vice versa.
        """
        at = self.names.find(name, before)
        if at is not None:
            return at
        bare = name = name.rstrip("/")
        while bare.startswith("./"):
            bare = bare[2:]
        found = (self.names.find(each, before) for each in (name, bare, f"./{bare}"))
        return next((at for at in found if at is not None), None)

    def find_target(self, member: TarMember) -> int | None:
        """Return the target member of a link, as `tarfile` does.

        A symbolic link is relative to its own folder and may point anywhere; a hard link points to an earlier member.
        """
        if member.islnk():
            return self.find(posixpath.normpath(member.linkname), member.number)
        folder = posixpath.dirname(member.name)
        return self.find(posixpath.normpath(f"{folder}/{member.linkname}" if folder else member.linkname))

    def find_files(self, paths: StringColumn, which: Ints) -> Ints:
        """Return the index of the regular file that each of the paths numbered `which` names, also through links.

        The index is -1 for no file or a sparse file. A leading "./" is ignored.
        """
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
            **super().to_arrays(),
            "links.blob": self.links.blob,
            "links.offsets": self.links.offsets,
            "links.of": self.link_of,
        }

    @classmethod
    def further(cls, arrays: Arrays, members: int) -> tuple[Any, ...]:
        link_of = checked_indices(arrays, "links.of", members)
        return checked_strings(arrays, "links", len(link_of)), link_of

    def fit(self, archive_bytes: int) -> bool:
        return ranges_lie_in(self.offset, self.size, first=_HEADER_BYTES, end=archive_bytes)


def _scan(path: FilePath) -> Any:
    if isinstance(path, str):
        return scan_tar(os.fsencode(path))
    assert isinstance(path, ObjectPath), "archives in stores are read in place"
    size = path.open().size()
    with scanning(path, size) as ahead:
        return scan_remote_tar(str(path), size, ahead.read, ahead.growth)


def build_tar_index(path: FilePath) -> tuple[Arrays, str]:
    """Scan the headers of the tar at `path`, and return the arrays and outline of its index.

    Raises ReadError, or DatasetError if the file is not a tar, is damaged, or exceeds a limit.
    """
    try:
        names, name_offsets, kind, offset, size, check, links, link_offsets, link_of, skipped = _scan(path)
        table = NameTable.build(StringColumn(names, name_offsets))
    except HeadraceError:
        raise  # from a store
    except OSError as error:
        raise ReadError(f"{error}. Check the file's permissions and the disk") from error
    except ValueError as error:
        raise DatasetError(f"{error}. Check it with `tar -tf`, and copy or write it again") from error
    members = TarMembers(table, kind, offset, size, check, StringColumn(links, link_offsets), link_of)
    return index_arrays(path, members, kind, skipped)


TAR = ArchiveKind(
    word="tar",
    listed_by="tar -tvf",
    format="headrace tar index 4",
    build=lambda path: build_tar_index(path),
    members=TarMembers,
)
