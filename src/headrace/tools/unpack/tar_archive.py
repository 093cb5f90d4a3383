"""Members of tars, plain and compressed: kinds, attributes and bytes."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import re
import tarfile
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from math import isfinite
from typing import Any, Self, cast

from headrace._core import tar_header_check
from headrace.data.archives.tar_index import TAR, TarMember
from headrace.data.sources.file_kind import decompress_command
from headrace.data.storage.open_file import OpenFile, read_exactly
from headrace.data.storage.sidecar import identify
from headrace.errors import ChangedError, DamagedMemberError, DatasetError, ReadError
from headrace.tools.unpack.plan import PIECE_BYTES, MemberAttributes, MemberKind, Piece, StreamedMember, UnpackMember

# -- from unpack/tar_attributes.py: A tar member's permissions and time, which the index does not keep, from the
# blocks before its data.
#
# Layout of POSIX ustar and PAX (IEEE Std 1003.1, pax) with GNU's base-256 numbers.


BLOCK_BYTES = 512
_MODE, _SIZE, _MTIME, _TYPE = slice(100, 108), slice(124, 136), slice(136, 148), slice(156, 157)
_SECOND_NS = 10**9
_NS_MOST = 2**63 - 1
"""What os.utime takes."""
_RECORD = re.compile(rb"(\d{1,7}) ")
_SECONDS = re.compile(rb"(-?)(\d{1,12})(?:\.(\d*))?")


def info_attributes(info: tarfile.TarInfo) -> MemberAttributes:
    """Of a header that tarfile has read."""
    exact = seconds_to_ns(info.pax_headers.get("mtime", "").encode("utf-8", "replace"))
    return MemberAttributes(info.mode, _clamp(int(info.mtime) * _SECOND_NS) if exact is None else exact)


def read_mode(header: bytes) -> int:
    return _number(header[_MODE])


def read_mtime_ns(header: bytes) -> int:
    return _clamp(_number(header[_MTIME]) * _SECOND_NS)


def pax_mtimes_ns(blocks: bytes) -> tuple[int | None, int | None]:
    """From the extension headers before a member: the time that is this member's, and the one that is for all later
    members too. None: not given."""
    own = every = None
    for kind, text in _extensions(blocks):
        if kind in (b"x", b"X", b"g"):
            found = _mtime_record(text)
            if kind == b"g":
                every = every if found is None else found
            else:
                own = own if found is None else found
    return own, every


def _extensions(blocks: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Type and data of each."""
    at = 0
    while at + BLOCK_BYTES <= len(blocks):
        header = blocks[at : at + BLOCK_BYTES]
        size = _number(header[_SIZE])
        at += BLOCK_BYTES
        yield header[_TYPE], blocks[at : at + size]
        at += -(-size // BLOCK_BYTES) * BLOCK_BYTES


def _mtime_record(text: bytes) -> int | None:
    """The last "length mtime=seconds\\n" of PAX records; None if there is none, or none that is a time."""
    found = None
    while (record := _RECORD.match(text)) is not None and len(record[0]) < int(record[1]) <= len(text):
        key, _, value = text[record.end() : int(record[1]) - 1].partition(b"=")
        if key == b"mtime":
            found = seconds_to_ns(value)
        text = text[int(record[1]) :]
    return found


def seconds_to_ns(text: bytes) -> int | None:
    """A time as PAX has it, such as 1700000000.25, or as Python writes a float; None if it is none."""
    found = _SECONDS.fullmatch(text)
    if found is not None:
        ns = int(found[2]) * _SECOND_NS + int((found[3] or b"").ljust(9, b"0")[:9])
        return _clamp(-ns if found[1] else ns)
    try:
        seconds = float(text)
    except ValueError:
        return None
    return _clamp(int(seconds * _SECOND_NS)) if isfinite(seconds * _SECOND_NS) else None


def _number(field: bytes) -> int:
    """Octal digits, or GNU's form for what these cannot hold: a set top bit, then two's complement."""
    if field[0] & 0x80:
        bits = 8 * len(field) - 1
        value = int.from_bytes(field, "big") & ((1 << bits) - 1)
        return value - (1 << bits) if field[0] & 0x40 else value
    digits = field.partition(b"\0")[0].strip()
    try:
        return int(digits or b"0", 8)
    except ValueError:
        return 0


def _clamp(ns: int) -> int:
    return max(-_NS_MOST, min(ns, _NS_MOST))


# -- from unpack/decompressed.py: A file that is compressed as a whole, read from its beginning to its end.


def open_decompressed(path: str, compression: str) -> Any:
    """A binary file of what `path` holds, which `compression` names. Raises ReadError, or DatasetError if nothing that
    is installed opens it."""
    opener = _find_opener(compression)
    if opener is None:
        hint = " with pip install backports.zstd, or" if compression == "zstd" else ""
        raise DatasetError(
            f"{path}: it is compressed with {compression}, which nothing installed here opens. Open it{hint} with "
            f"{decompress_command(path, compression)}, and unpack what that makes"
        )
    try:
        return opener(path)
    except OSError as error:
        raise ReadError(f"{path}: could not be read: {error.strerror}. Check its permissions and the disk") from error


def _find_opener(compression: str) -> Callable[[str], Any] | None:
    match compression:
        case "gzip":
            return gzip.open
        case "bzip2":
            return bz2.open
        case "xz":
            return lzma.open
        case "zstd":
            return _find_zstd()
    return None


def _find_zstd() -> Callable[[str], Any] | None:
    """Of Python from 3.14 on, of its backport, or Arrow's."""
    for name in ("compression.zstd", "backports.zstd"):
        try:
            opener: Callable[[str], Any] = import_module(name).open
        except ImportError:
            continue
        return opener
    try:
        arrow = import_module("pyarrow")
    except ImportError:
        return None
    return lambda path: arrow.input_stream(path, compression="zstd")


# -- from unpack/ranges.py: Pieces of a file whose bytes lie in an archive as they are: in one range, or the ranges of
# a sparse file joined.


class _Buffers(threading.local):
    """One a thread: a new one for each file would be fetched from the system and given back each time."""

    def __init__(self) -> None:
        self.piece = memoryview(bytearray(PIECE_BYTES))


_buffers = _Buffers()


def range_pieces(file: OpenFile, offset: int, size: int, *, at: int = 0) -> Iterator[Piece]:
    """`size` bytes from `offset` on, which go to position `at`. Raises ReadError or ChangedError."""
    buffer = _buffers.piece
    for done in range(0, size, PIECE_BYTES):
        piece = buffer[: min(PIECE_BYTES, size - done)]
        if file.read_into(piece, offset + done) < len(piece):
            raise ChangedError(
                f"{file} at byte {offset}: expected {size} bytes, got fewer: the file has become shorter since it was "
                f"indexed. Run it again"
            )
        yield at + done, piece


def sparse_map(info: tarfile.TarInfo, data_bytes: int, place: str) -> list[tuple[int, int]]:
    """(position, length) of each range of a sparse file that has bytes; these lie one after another in the tar.

    Raises DamagedMemberError unless they rise, end within the file's size, and have no more than `data_bytes` bytes
    together.
    """
    ranges = cast(list[tuple[int, int]], info.sparse)
    end = total = 0
    for at, length in ranges:
        if length < 0 or at < end or at + length > info.size:
            raise DamagedMemberError(f"{place}: its map of data and holes does not fit its {info.size:,} bytes")
        end, total = at + length, total + length
    if total > data_bytes:
        raise DamagedMemberError(f"{place}: expected {total:,} bytes of data by its map, got {data_bytes:,}")
    return ranges


# -- from unpack/tar_kinds.py: What a tar's members are, by their type flags: POSIX's, and those that GNU tar writes
# beside them.


_DUMPED_FOLDER, _VOLUME_LABEL = b"D", b"V"
"""GNU's: a folder of an incremental dump, whose data lists what it held, and `tar --label`."""
_TAR_KINDS = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, MemberKind.FILE),
    tarfile.DIRTYPE: MemberKind.FOLDER,
    _DUMPED_FOLDER: MemberKind.FOLDER,
    tarfile.SYMTYPE: MemberKind.SYMBOLIC_LINK,
    tarfile.LNKTYPE: MemberKind.HARD_LINK,
    _VOLUME_LABEL: MemberKind.LABEL,
}


def tar_kind_of(type_flag: bytes) -> MemberKind:
    return _TAR_KINDS.get(type_flag, MemberKind.SPECIAL)


# -- from unpack/tar_stream.py: A compressed tar, which can only be read from its beginning to its end, once.


def stream_tar(path: str, compression: str) -> Iterator[StreamedMember]:
    """Every member in order. It is read to its very end, where the compression has its checksum.

    Raises ReadError, DatasetError (damaged, cut short, no tar) or DamagedMemberError; so do the members' pieces.
    """
    with open_decompressed(path, compression) as file:
        forward = _Forward(path, file)
        try:
            # As a plain file: tarfile's own streams copy their buffer for each header.
            with tarfile.TarFile(fileobj=forward, tarinfo=_StrictInfo) as tar:  # type: ignore[arg-type]
                while (info := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # each would be kept
                    yield _streamed(path, forward, info, tar.offset)
        except (tarfile.TarError, ValueError, OverflowError) as error:
            raise damaged(path, str(error)) from error
        forward.drain()


class _Forward:
    """What tarfile needs of a file that cannot go back. Raises ReadError or DatasetError.

    `block` is what it was last asked for a block of: once tarfile has read a header, that header.
    """

    def __init__(self, path: str, file: Any) -> None:
        self._path = path
        self._file = file
        self._at = 0
        self.block = b""

    def tell(self) -> int:
        return self._at

    def seek(self, at: int) -> None:
        if at < self._at:
            raise damaged(self._path, "a header points back")
        while self._at < at and self.read(min(at - self._at, PIECE_BYTES)):
            pass

    def read(self, size: int) -> bytes:
        """Fewer bytes only at the end."""
        parts = []
        missing = size
        while missing > 0 and (part := self._read(missing)):
            parts.append(part)
            missing -= len(part)
        data = b"".join(parts)
        if size == tarfile.BLOCKSIZE:
            self.block = data
        return data

    def drain(self) -> None:
        while self.read(PIECE_BYTES):
            pass

    def _read(self, size: int) -> bytes:
        try:
            data: bytes = self._file.read(size)
        except OSError as error:
            if error.errno is not None:
                raise ReadError(f"{self._path}: could not be read: {error.strerror}. Check the disk") from error
            raise damaged(self._path, str(error)) from error
        except Exception as error:  # each format has errors of its own, and zstd's is no more than an Exception
            raise damaged(self._path, str(error)) from error
        self._at += len(data)
        return data


_MAGIC, _PREFIX = slice(257, 265), slice(345, 500)


class _StrictInfo(tarfile.TarInfo):
    """tarfile itself takes a damaged header for the end of the archive, and the times that GNU tar writes into an
    incremental dump's headers for the beginning of a name, which POSIX has in their place.

    Told by what it has read, as later releases of Python no longer call `frombuf` for it.
    """

    @classmethod
    def fromtarfile(cls, tar: tarfile.TarFile) -> Self:
        forward: _Forward = tar.fileobj  # type: ignore[assignment]
        try:
            info = super().fromtarfile(tar)
        except tarfile.HeaderError as error:
            if not any(forward.block):
                raise  # the end mark, or the end
            raise tarfile.ReadError(f"expected a header, got a block that is none: {error}") from error
        if forward.block[_MAGIC] == tarfile.GNU_MAGIC:
            times = tarfile.nts(forward.block[_PREFIX], tar.encoding, tar.errors)  # type: ignore[attr-defined]
            info.name = info.name.removeprefix(f"{times}/" if times else "")
        return info


def damaged(path: str, why: str) -> DatasetError:
    """What came before it may be wrong and has its names: the checksum, if there is one, is of the whole."""
    return DatasetError(
        f"{path}: {why}. Check it with `tar -tf`, copy or write it again, and unpack that into an empty folder: what "
        f"was made of this one may be wrong"
    )


def _streamed(path: str, file: _Forward, info: tarfile.TarInfo, end: int) -> StreamedMember:
    """`end` is where the next header lies."""
    kind = tar_kind_of(info.type)
    member = UnpackMember(info.name, kind, info.size if kind is MemberKind.FILE else 0, info.linkname)
    return StreamedMember(member, info_attributes(info), _pieces(path, file, info, end))


def _pieces(path: str, file: _Forward, info: tarfile.TarInfo, end: int) -> Iterator[Piece]:
    place = f"{path}: member {info.name!r}"
    file.seek(info.offset_data)
    for at, length in [(0, info.size)] if info.sparse is None else sparse_map(info, end - info.offset_data, place):
        for done in range(0, length, PIECE_BYTES):
            wanted = min(PIECE_BYTES, length - done)
            data = file.read(wanted)
            if len(data) < wanted:
                raise damaged(path, f"it is cut short inside member {info.name!r}")
            yield at + done, memoryview(data)


# -- from unpack/tar_archive.py: An uncompressed tar, by its index.


_HEADERS_MOST_BYTES = 1 << 24
"""Of the extension headers of one member, or the map of a sparse file."""


class TarArchive:
    """Names and places are the index's; permissions and times come from the headers."""

    def __init__(self, path: str, *, cache: str | None) -> None:
        """Raises ReadError, or DatasetError if it is no tar or is damaged."""
        self.path = path
        self._file = OpenFile(os.fsencode(path))
        self._members = TAR.open_members(path, identify(self._file), cache=cache)
        self._sparse: dict[int, tarfile.TarInfo] = {}
        # Global headers elsewhere come of tars that were joined, and none is known to give a time.
        self._every_mtime_ns = self._pax_mtimes_ns(0, self._members.member(0))[1] if len(self._members) else None

    def __len__(self) -> int:
        return len(self._members)

    def member(self, number: int) -> UnpackMember:
        member = self._members.member(number)
        if member.issparse():
            info = self._sparse_info(number)
            return UnpackMember(info.name, MemberKind.FILE, info.size, "")
        kind = tar_kind_of(member.type)
        return UnpackMember(member.name, kind, member.size if kind is MemberKind.FILE else 0, member.linkname)

    def attributes(self, number: int) -> MemberAttributes:
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
                return MemberAttributes(read_mode(header), mtime_ns)
        return MemberAttributes(read_mode(header), read_mtime_ns(header))

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
