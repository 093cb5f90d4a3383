"""An uncompressed tar, by its index."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Iterator

from headrace._core import tar_header_check
from headrace.data.identity import identify
from headrace.data.reading import read_exactly
from headrace.data.storage.open_file import OpenFile
from headrace.data.tar_member import TarMember
from headrace.data.tar_sidecar import open_members
from headrace.errors import ChangedError, DamagedMemberError
from headrace.unpack.members import Attributes, Kind, Member, Piece
from headrace.unpack.ranges import range_pieces, sparse_map
from headrace.unpack.tar_attributes import BLOCK_BYTES, info_attributes, pax_mtimes_ns, read_mode, read_mtime_ns
from headrace.unpack.tar_kinds import kind_of

_HEADERS_MOST_BYTES = 1 << 24
"""Of the extension headers of one member, or the map of a sparse file."""


class TarArchive:
    """Names and places are the index's; permissions and times come from the headers."""

    def __init__(self, path: str, *, cache: str | None) -> None:
        """Raises ReadError, or DatasetError if it is no tar or is damaged."""
        self.path = path
        self._file = OpenFile(os.fsencode(path))
        self._members = open_members(path, identify(self._file), cache=cache)
        self._sparse: dict[int, tarfile.TarInfo] = {}
        # Global headers elsewhere come of tars that were joined, and none is known to give a time.
        self._every_mtime_ns = self._pax_mtimes_ns(0, self._members.member(0))[1] if len(self._members) else None

    def __len__(self) -> int:
        return len(self._members)

    def member(self, number: int) -> Member:
        member = self._members.member(number)
        if member.issparse():
            info = self._sparse_info(number)
            return Member(info.name, Kind.FILE, info.size, "")
        kind = kind_of(member.type)
        return Member(member.name, kind, member.size if kind is Kind.FILE else 0, member.linkname)

    def attributes(self, number: int) -> Attributes:
        member = self._members.member(number)
        if member.issparse():
            return info_attributes(self._sparse_info(number))
        header = read_exactly(self._file, member.offset_data - BLOCK_BYTES, BLOCK_BYTES)
        if tar_header_check(header) != self._members.header_check(number):
            raise ChangedError(
                f"{self.path} at byte {member.offset_data}: expected the header of member {member.name!r}, got "
                f"another: the tar has been rewritten since it was indexed. Run it again once it is complete"
            )
        own, every = self._pax_mtimes_ns(number, member)
        for mtime_ns in (own, every, self._every_mtime_ns):
            if mtime_ns is not None:
                return Attributes(read_mode(header), mtime_ns)
        return Attributes(read_mode(header), read_mtime_ns(header))

    def pieces(self, number: int) -> Iterator[Piece]:
        member = self._members.member(number)
        if member.issparse():
            return self._sparse_pieces(number)
        return range_pieces(self._file, member.offset_data, member.size)

    def _pax_mtimes_ns(self, number: int, member: TarMember) -> tuple[int | None, int | None]:
        """What the extension headers before the member say: its own time, and that of all members from it on."""
        start = self._start(number)
        size = member.offset_data - BLOCK_BYTES - start
        if size > _HEADERS_MOST_BYTES:
            raise DamagedMemberError(
                f"{self._place(number)}: expected extension headers of at most {_HEADERS_MOST_BYTES:,} bytes, got "
                f"{size:,}"
            )
        return pax_mtimes_ns(read_exactly(self._file, start, size)) if size else (None, None)

    def _start(self, number: int) -> int:
        """First byte of the member's headers: where the data of the one before it ends."""
        if number == 0:
            return 0
        before = self._members.member(number - 1)
        return before.offset_data + -(-before.size // BLOCK_BYTES) * BLOCK_BYTES

    def _sparse_info(self, number: int) -> tarfile.TarInfo:
        """As tarfile reads the headers of a sparse file, whose map takes many forms."""
        info = self._sparse.get(number)
        if info is None:
            self._sparse[number] = info = self._read_sparse_info(number)
        return info

    def _read_sparse_info(self, number: int) -> tarfile.TarInfo:
        start, member = self._start(number), self._members.member(number)
        # PAX's newest map lies where the data begins.
        headers = read_exactly(self._file, start, min(member.offset_data + member.size - start, _HEADERS_MOST_BYTES))
        try:
            info = tarfile.TarFile(fileobj=io.BytesIO(headers)).next()
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise DamagedMemberError(f"{self._place(number)}: its map of data and holes is damaged: {error}") from error
        if info is None or info.sparse is None:
            raise DamagedMemberError(f"{self._place(number)}: it has no map of data and holes")
        info.offset_data += start
        return info

    def _sparse_pieces(self, number: int) -> Iterator[Piece]:
        info, member = self._sparse_info(number), self._members.member(number)
        data = info.offset_data
        for at, length in sparse_map(info, member.offset_data + member.size - data, self._place(number)):
            yield from range_pieces(self._file, data, length, at=at)
            data += length

    def _place(self, number: int) -> str:
        member = self._members.member(number)
        return f"{self.path} at byte {member.offset_data}: member {member.name!r}"
