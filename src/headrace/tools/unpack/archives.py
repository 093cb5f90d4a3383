"""Members of tars and zips and their bytes, read by tarfile and zipfile.

A compressed tar is streamed: one thread reads it from start to end, a member's pieces before the next member. Of other
archives, any number of threads reads pieces.
"""

from __future__ import annotations

import os
import stat
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import IO, Any, NamedTuple

from headrace.data import OpenFile, compression_of, decompress_command, unreadable
from headrace.errors import ChangedError, DamagedMemberError, DatasetError, HeadraceError, UnsupportedMemberError

FILE, FOLDER, SYMBOLIC_LINK, HARD_LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE
KINDS = {FILE: "a file", FOLDER: "a folder", SYMBOLIC_LINK: "a symbolic link", HARD_LINK: "a hard link"}
_LABEL, _SPECIAL = b"V", b"?"
_PIECE_BYTES = 1 << 17
"""Bytes per copy, small enough for the CPU cache. A megabyte took up to twice as long."""
_LATEST_S = 9e9
"""Latest time that os.utime accepts in nanoseconds."""
_ZIP_UNIX = (3, 19)
"""Host systems with Unix attributes (APPNOTE.TXT 4.4.2): Unix and macOS."""
_ZIP_KINDS = {0: FILE, stat.S_IFREG: FILE, stat.S_IFDIR: FOLDER, stat.S_IFLNK: SYMBOLIC_LINK}
_MODULES = {"gzip": "gzip", "bzip2": "bz2", "xz": "lzma", "zstd": "compression.zstd backports.zstd pyarrow"}
"""Modules that decompress; `compression.zstd` exists since Python 3.14."""


class Member(NamedTuple):
    """Member of an archive, of a kind in KINDS or another one, which is not created."""

    name: str
    kind: bytes
    size: int
    mode: int | None
    mtime_ns: int
    link: str
    """Target of a link, as the archive has it; in a plan, as it is created."""
    source: Any
    """Location of the bytes for the archive's reader; unique to the member."""
    path: bytes = b""
    """Path in the target, in a plan."""


def open_archive(path: str) -> TarArchive | ZipArchive:
    """Open a tar or a zip, by its content. Raises ReadError, or DatasetError for a corrupt zip."""
    with _reading(path, "tar -tf"), open(path, "rb") as file:
        return ZipArchive(path) if file.read(4) in (b"PK\x03\x04", b"PK\x05\x06") else TarArchive(path)


class TarArchive:
    def __init__(self, path: str) -> None:
        self._path = path
        self._compression = compression_of(path)
        self._file = OpenFile(os.fsencode(path))
        self._stream: tuple[tarfile.TarFile, tarfile.TarInfo] | None = None
        """Compressed tar, and its current member."""
        self.is_streamed = self._compression is not None

    def members(self) -> Iterator[Member]:
        """Yield all members. Raises ReadError, or DatasetError if the tar is corrupt or truncated."""
        with _reading(self._path, "tar -tf"), closing(self._open()) as file:
            mode = "r|" if self.is_streamed else "r:"
            with tarfile.open(fileobj=file, mode=mode, tarinfo=_CheckedInfo) as tar:  # type: ignore[call-overload]
                while (info := tar.next()) is not None:
                    tar.members.clear()  # each would be kept
                    self._stream = (tar, info) if self.is_streamed else None
                    kind, size = (FILE, info.size) if info.isreg() else (info.type, 0)
                    mtime_ns = int(max(-_LATEST_S, min(_LATEST_S, info.mtime)) * 10**9)
                    source = info if info.issparse() and not self.is_streamed else info.offset_data
                    if kind != _LABEL:
                        yield Member(info.name, kind, size, info.mode, mtime_ns, info.linkname, source)
            while self.is_streamed and file.read(_PIECE_BYTES):  # the compression's checksum is at the end
                pass

    def pieces(self, member: Member) -> Iterator[bytes]:
        """Yield a file's bytes. Raises ReadError, ChangedError or DatasetError."""
        if self._stream is not None:
            tar, info = self._stream
            with _reading(self._path, "tar -tf"):
                yield from _read(tar.extractfile(info))
        elif isinstance(member.source, tarfile.TarInfo):
            with _reading(self._path, "tar -tf"), tarfile.open(self._path, "r:") as tar:
                yield from _read(tar.extractfile(member.source))
        else:
            for done in range(0, member.size, _PIECE_BYTES):
                wanted = min(_PIECE_BYTES, member.size - done)
                piece = self._file.read(member.source + done, wanted)
                if len(piece) < wanted:
                    raise ChangedError(f"{self._path}: it has become shorter. Run this again once it is complete")
                yield piece

    def _open(self) -> Any:
        """Open the file for reading, decompressed. Raises OSError, or DatasetError if no decompressor is installed."""
        if self._compression is None:
            return open(self._path, "rb", buffering=2048)  # filled anew for each header
        for name in _MODULES.get(self._compression, "").split():
            with suppress(ImportError):
                module = import_module(name)
                options = {"compression": "zstd"} if name == "pyarrow" else {}
                return (module.input_stream if options else module.open)(self._path, **options)
        hint = " with pip install backports.zstd, or" if self._compression == "zstd" else ""
        raise DatasetError(
            f"{self._path}: it is compressed with {self._compression}, which nothing installed here opens. Open it"
            f"{hint} with {decompress_command(self._path, self._compression)}, and unpack what that makes"
        )


class _CheckedInfo(tarfile.TarInfo):
    """Header that is an error if it is damaged; tarfile takes it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> _CheckedInfo:
        try:
            return super().fromtarfile(tar)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(str(error)) from error


class ZipArchive:
    is_streamed = False

    def __init__(self, path: str) -> None:
        self._path = path
        self._opening = threading.Lock()
        with _reading(path, "unzip -t"):
            self._zip = zipfile.ZipFile(path)

    def members(self) -> Iterator[Member]:
        for info in self._zip.infolist():
            mode = info.external_attr >> 16 if info.create_system in _ZIP_UNIX else 0
            kind = FOLDER if info.is_dir() else _ZIP_KINDS.get(stat.S_IFMT(mode), _SPECIAL)
            mtime_ns = int(time.mktime((*info.date_time, 0, 0, -1))) * 10**9
            member = Member(info.filename, kind, info.file_size * (kind == FILE), mode or None, mtime_ns, "", info)
            if kind == SYMBOLIC_LINK and info.file_size < 4096:
                member = member._replace(link=os.fsdecode(b"".join(self.pieces(member))))
            yield member

    def pieces(self, member: Member) -> Iterator[bytes]:
        """Inflate a file; its CRC is checked at the end. Raises ReadError or MemberError."""
        place = f"{self._path}: member {member.name!r}"
        with _reading(place, "unzip -t", DamagedMemberError):
            try:
                with self._opening:  # zipfile counts its readers without a lock
                    file = self._zip.open(member.source)
            except RuntimeError as error:
                why = "it is encrypted, or compressed by a method that Python lacks"
                raise UnsupportedMemberError(f"{place}: {why}. Unpack it with another tool") from error
            yield from _read(file)
            with self._opening:
                file.close()


def _read(file: IO[bytes] | None) -> Iterator[bytes]:
    assert file is not None
    return iter(partial(file.read, _PIECE_BYTES), b"")


@contextmanager
def _reading(place: str, check: str, damage: Callable[[str], HeadraceError] = DatasetError) -> Iterator[None]:
    """Raise ReadError for an error of the disk, and `damage` for any other: each format has its own."""
    try:
        yield
    except HeadraceError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:  # a decompressor's error has no errno
            raise unreadable(place, error) from error
        raise damage(
            f"{place}: {error}. Check it with `{check}`, copy or write it again, and unpack that into an empty folder: "
            f"what was made of this one may be wrong"
        ) from error
