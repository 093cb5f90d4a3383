"""Members of zips, read by zipfile: kinds, attributes and bytes."""

from __future__ import annotations

import lzma
import stat
import struct
import threading
import time
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Iterator

from headrace.data import unreadable
from headrace.errors import DamagedMemberError, DatasetError, UnsupportedMemberError
from headrace.tools.unpack.plan import PIECE_BYTES, MemberAttributes, MemberKind, Piece, UnpackMember, decode

_ZIP_UNIX = (3, 19)
"""Host systems with Unix attributes (APPNOTE.TXT 4.4.2): Unix and macOS."""
_ZIP_TIMES, _ZIP_HAS_MTIME = 0x5455, 1
"""Info-ZIP's extra field of UTC times; zip's own times are local, with even seconds."""
_ZIP_KINDS = {
    0: MemberKind.FILE,
    stat.S_IFREG: MemberKind.FILE,
    stat.S_IFDIR: MemberKind.FOLDER,
    stat.S_IFLNK: MemberKind.SYMBOLIC_LINK,
}
_ZIP_LINK_MOST_BYTES = 4095
"""Maximum length of a symbolic link's target."""
_ZIP_ENCRYPTED = 1
_ZIP_HEADER_BYTES = 30
_DAMAGED_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, OverflowError, EOFError)
"""Errors of zipfile for a corrupt zip, including out-of-range numbers and undecodable names."""


class ZipArchive:
    """Zip with a central directory, read by zipfile. Any number of threads may access members."""

    def __init__(self, path: str) -> None:
        """Open the zip. Raises ReadError, or DatasetError if it is corrupt or not a zip."""
        self.path = path
        self._opening = threading.Lock()  # zipfile counts its readers without a lock
        try:
            self._zip = zipfile.ZipFile(path)
        except OSError as error:
            raise unreadable(path, error) from error
        except (*_DAMAGED_ZIP, NotImplementedError) as error:
            raise DatasetError(f"{path}: {error}. Check it with `unzip -t`, and copy or write it again") from error
        self._infos = self._zip.infolist()
        self._starts = sorted(info.header_offset for info in self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def member(self, number: int) -> UnpackMember:
        info = self._infos[number]
        form = stat.S_IFDIR if info.is_dir() else stat.S_IFMT(_zip_mode(info) or 0)
        kind, link = _ZIP_KINDS.get(form, MemberKind.SPECIAL), ""
        if kind is MemberKind.SYMBOLIC_LINK and info.file_size <= _ZIP_LINK_MOST_BYTES:
            link = decode(b"".join(bytes(piece) for _, piece in self.pieces(number)))
        return UnpackMember(info.filename, kind, info.file_size if kind is MemberKind.FILE else 0, link)

    def attributes(self, number: int) -> MemberAttributes:
        info = self._infos[number]
        seconds = _zip_utc_mtime(info.extra)
        if seconds is None:
            seconds = int(time.mktime((*info.date_time, 0, 0, -1)))
        return MemberAttributes(_zip_mode(info), seconds * 10**9)

    def pieces(self, number: int) -> Iterator[Piece]:
        """Inflate a file; its CRC is checked at the end."""
        info, at = self._infos[number], 0
        after = bisect_right(self._starts, info.header_offset)
        end = self._starts[after] if after < len(self._starts) else self._zip.start_dir
        if info.flag_bits & _ZIP_ENCRYPTED:
            raise UnsupportedMemberError(
                f"{self.path}: member {info.filename!r} is encrypted. Unpack it with another tool"
            )
        if info.compress_size > end - info.header_offset - _ZIP_HEADER_BYTES:
            raise self._damaged(info, "it overlaps the next member, as in a zip bomb")
        try:
            with self._opening:
                file = self._zip.open(info)
            try:
                while piece := file.read(PIECE_BYTES):
                    yield at, memoryview(piece)
                    at += len(piece)
            finally:
                with self._opening:
                    file.close()
        except NotImplementedError as error:
            raise UnsupportedMemberError(
                f"{self.path}: member {info.filename!r}: {error}. Unpack it with another tool"
            ) from error
        except (*_DAMAGED_ZIP, OSError) as error:
            if isinstance(error, OSError) and error.errno is not None:  # bzip2's error for corrupt data has no errno
                raise unreadable(self.path, error) from error
            raise self._damaged(info, str(error)) from error
        if at != info.file_size:
            raise self._damaged(info, f"expected {info.file_size:,} bytes, got {at:,}")

    def _damaged(self, info: zipfile.ZipInfo, why: str) -> DamagedMemberError:
        return DamagedMemberError(
            f"{self.path} at byte {info.header_offset}: member {info.filename!r}: {why}. Check it with `unzip -t`, and "
            f"copy or write it again"
        )


def _zip_mode(info: zipfile.ZipInfo) -> int | None:
    """Return the mode in lstat's format; None if absent, so that files get default permissions."""
    mode = info.external_attr >> 16
    return mode if mode and info.create_system in _ZIP_UNIX else None


def _zip_utc_mtime(extra: bytes) -> int | None:
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<HH", extra)
        if kind == _ZIP_TIMES and size >= 5 and len(extra) >= 9 and extra[4] & _ZIP_HAS_MTIME:
            seconds: int = struct.unpack_from("<i", extra, 5)[0]
            return seconds
        extra = extra[4 + size :]
    return None
