"""Members of a zip, by its central directory."""

from __future__ import annotations

import os
import stat
import struct
import time
import zipfile
from array import array
from collections.abc import Iterator

from headrace.data.archives.zip_index import ZIP, ZipMember
from headrace.data.archives.zip_reading import DamagedEntryError, entry_pieces, refusal
from headrace.data.storage.open_file import OpenFile
from headrace.data.storage.sidecar import identify
from headrace.errors import ChangedError, DamagedMemberError, DatasetError, ReadError, UnsupportedMemberError
from headrace.tools.unpack.plan import PIECE_BYTES, MemberAttributes, MemberKind, Piece, UnpackMember, decode

_UNIX = (3, 19)
"""Systems whose attributes are those of Unix (APPNOTE.TXT 4.4.2): Unix itself, and macOS."""
_TIMES_FIELD, _HAS_MTIME = 0x5455, 1
"""Info-ZIP's extra field of times in UTC; zip's own are local, and even."""
_LINK_MOST_BYTES = 4095
_NO_MODE = -1


class ZipArchive:
    """Names and places are the index's; permissions and times are zipfile's, which parses the central directory for
    them each time it is opened."""

    def __init__(self, path: str, *, cache: str | None) -> None:
        """Raises ReadError, or DatasetError if it is no zip or is damaged."""
        self.path = path
        self._file = OpenFile(os.fsencode(path))
        self._identity = identify(self._file)
        self._members = ZIP.open_members(path, self._identity, cache=cache)
        infos = _read_infos(path)
        if len(infos) != len(self._members):
            raise ChangedError(f"{path}: it was replaced while it was opened. Run it again once it is complete")
        self._modes = array("q", map(_zip_mode, infos))
        self._mtimes_ns = array("q", map(_zip_mtime_ns, infos))

    def __len__(self) -> int:
        return len(self._members)

    def member(self, number: int) -> UnpackMember:
        member = self._members.member(number)
        kind = _zip_kind(member, self._modes[number])
        if kind is MemberKind.SYMBOLIC_LINK:
            return UnpackMember(member.name, kind, 0, self._link(number))
        return UnpackMember(member.name, kind, member.file_size if kind is MemberKind.FILE else 0, "")

    def attributes(self, number: int) -> MemberAttributes:
        mode = self._modes[number]
        return MemberAttributes(None if mode == _NO_MODE else mode, self._mtimes_ns[number])

    def pieces(self, number: int) -> Iterator[Piece]:
        """Inflated, and at the end checked by their CRC."""
        entry = self._members.entry(number)
        why = refusal(entry)
        if why is not None:
            raise UnsupportedMemberError(f"{self.path}: member {self._members.names[number]!r} {why}")
        at = 0
        try:
            for piece in entry_pieces(self._file, entry, most=PIECE_BYTES):
                yield at, memoryview(piece)
                at += len(piece)
        except DamagedEntryError as error:
            raise self._damaged(number, str(error)) from error

    def _link(self, number: int) -> str:
        """What a symbolic link names is its data; more than a path can hold is given as nothing."""
        if self._members.member(number).file_size > _LINK_MOST_BYTES:
            return ""
        return decode(b"".join(bytes(piece) for _, piece in self.pieces(number)))

    def _damaged(self, number: int, why: str) -> ChangedError | DamagedMemberError:
        member = self._members.member(number)
        place = f"{self.path} at byte {member.header_offset}: member {member.name!r}: {why}"
        if identify(self._file) != self._identity:
            return ChangedError(f"{place}: the file has changed since it was opened. Run it again")
        return DamagedMemberError(f"{place}. Check it with `unzip -t`, and copy or write it again")


def _read_infos(path: str) -> list[zipfile.ZipInfo]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.infolist()
    except OSError as error:
        raise ReadError(f"{path}: could not be read: {error.strerror}. Check its permissions and the disk") from error
    # zipfile raises more than its own error on a damaged directory: numbers that do not fit, names that do not decode.
    except (zipfile.BadZipFile, struct.error, ValueError, OverflowError, NotImplementedError, EOFError) as error:
        raise DatasetError(f"{path}: {error}. Check it with `unzip -t`, and copy or write it again") from error


def _zip_kind(member: ZipMember, mode: int) -> MemberKind:
    if member.is_dir():
        return MemberKind.FOLDER
    match 0 if mode == _NO_MODE else stat.S_IFMT(mode):
        case 0 | stat.S_IFREG:
            return MemberKind.FILE
        case stat.S_IFDIR:
            return MemberKind.FOLDER
        case stat.S_IFLNK:
            return MemberKind.SYMBOLIC_LINK
    return MemberKind.SPECIAL


def _zip_mode(info: zipfile.ZipInfo) -> int:
    """As lstat has it; without it, files get the permissions of any new file."""
    mode = info.external_attr >> 16
    return mode if mode and info.create_system in _UNIX else _NO_MODE


def _zip_mtime_ns(info: zipfile.ZipInfo) -> int:
    seconds = _utc_mtime(info.extra)
    if seconds is None:
        seconds = int(time.mktime((*info.date_time, 0, 0, -1)))
    return seconds * 10**9


def _utc_mtime(extra: bytes) -> int | None:
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _TIMES_FIELD and size >= 5 and len(extra) >= 9 and extra[4] & _HAS_MTIME:
            seconds: int = struct.unpack_from("<i", extra, 5)[0]
            return seconds
        extra = extra[4 + size :]
    return None
