"""Members of plain and compressed tars: kinds, attributes and bytes.

For a plain tar, the index has names and offsets, and tarfile parses each member's headers for permissions and times. A
compressed tar is read by tarfile from start to end.
"""

from __future__ import annotations

import io
import os
import tarfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from importlib import import_module
from typing import Any, NamedTuple, cast

from headrace._core import tar_header_check
from headrace.data import TAR, OpenFile, TarMember, decompress_command, identify, read_exactly, unreadable
from headrace.errors import ChangedError, DamagedMemberError, DatasetError
from headrace.tools.unpack.plan import PIECE_BYTES, MemberAttributes, MemberKind, Piece, UnpackMember

_HEADERS_MOST_BYTES = 1 << 24
"""Maximum bytes of a member's extension headers, or of a sparse file's map."""
_MODE, _MTIME = slice(100, 108), slice(136, 148)
"""Fields of a header (POSIX ustar)."""
_NS_MOST = 2**63 - 1
"""Latest time that os.utime accepts."""
_TAR_KINDS = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, MemberKind.FILE),
    tarfile.DIRTYPE: MemberKind.FOLDER,
    b"D": MemberKind.FOLDER,  # GNU: a folder of an incremental dump, with its listing as data
    tarfile.SYMTYPE: MemberKind.SYMBOLIC_LINK,
    tarfile.LNKTYPE: MemberKind.HARD_LINK,
    b"V": MemberKind.LABEL,  # GNU: `tar --label`
}
_DAMAGED_TAR = (tarfile.TarError, ValueError, OverflowError)
"""Errors of tarfile for a corrupt tar."""


class _Buffers(threading.local):
    """One buffer per thread: a new buffer per file would be allocated from and returned to the system each time."""

    def __init__(self) -> None:
        self.piece = memoryview(bytearray(PIECE_BYTES))


_buffers = _Buffers()


class TarArchive:
    """Uncompressed tar with an index. Any number of threads may access members, by number and in any order."""

    def __init__(self, path: str, *, cache: str | None) -> None:
        """Open the tar. Raises ReadError, or DatasetError if it is corrupt or not a tar."""
        self.path = path
        self._file = OpenFile(os.fsencode(path))
        self._members = TAR.open_members(path, identify(self._file), cache=cache)
        self._sparse: dict[int, tarfile.TarInfo] = {}
        self._for_all: dict[str, str] = {}
        """Global PAX headers at the start. Later ones come from concatenated tars, and none is known to set a time."""
        if len(self._members):
            self._parse(0, self._members.member(0))

    def __len__(self) -> int:
        return len(self._members)

    def member(self, number: int) -> UnpackMember:
        member = self._members.member(number)
        return _tar_member(self._parse(number, member) if member.issparse() else member)

    def attributes(self, number: int) -> MemberAttributes:
        """Read a member's permissions and time. Raises ReadError, ChangedError or DamagedMemberError."""
        return _tar_attributes(self._parse(number, self._members.member(number)))

    def pieces(self, number: int) -> Iterator[Piece]:
        """Read a file's bytes. Raises ReadError, ChangedError or DamagedMemberError."""
        member = self._members.member(number)
        offset, ranges = member.offset_data, [(0, member.size)]
        if member.issparse():
            info = self._parse(number, member)
            offset = info.offset_data
            ranges = _sparse_map(info, member.offset_data + member.size - offset, self._place(member))

        def read(size: int) -> memoryview:
            nonlocal offset
            piece = _buffers.piece[:size]
            if self._file.read_into(piece, offset) < size:
                raise ChangedError(
                    f"{self.path} at byte {offset}: expected {size} bytes, got fewer: the file has become shorter "
                    f"since it was indexed. Run it again"
                )
            offset += size
            return piece

        return _pieces(ranges, read)

    def _parse(self, number: int, member: TarMember) -> tarfile.TarInfo:
        """Parse the headers before a member's data; the index has a check of the last one.

        A sparse file's map has several formats; PAX's newest is at the start of the data.
        """
        if number in self._sparse:
            return self._sparse[number]
        before = self._members.member(number - 1) if number else None
        start = 0 if before is None else before.offset_data + -(-before.size // tarfile.BLOCKSIZE) * tarfile.BLOCKSIZE
        size = member.offset_data - start
        if size > _HEADERS_MOST_BYTES:
            raise DamagedMemberError(
                f"{self._place(member)}: expected extension headers of at most {_HEADERS_MOST_BYTES:,} bytes, got "
                f"{size:,}"
            )
        blocks = read_exactly(self._file, start, size)
        header = blocks[-tarfile.BLOCKSIZE :]
        if member.issparse():
            blocks += read_exactly(self._file, member.offset_data, min(member.size, _HEADERS_MOST_BYTES - size))
        elif tar_header_check(header) != self._members.header_check(number):
            raise ChangedError(
                f"{self.path} at byte {member.offset_data}: expected the header of member {member.name!r}, got "
                f"another: the tar has been rewritten since it was indexed. Run it again once it is complete"
            )
        try:
            if len(blocks) == tarfile.BLOCKSIZE and not self._for_all:
                info = tarfile.TarInfo()  # frombuf takes ten times as long and parses what the index has
                info.mode, info.mtime = tarfile.nti(header[_MODE]), tarfile.nti(header[_MTIME])  # type: ignore[attr-defined]
                return info
            with tarfile.TarFile(fileobj=io.BytesIO(blocks), pax_headers=dict(self._for_all), ignore_zeros=True) as tar:
                found = tar.next()
        except _DAMAGED_TAR as error:
            raise DamagedMemberError(
                f"{self._place(member)}: its headers, or its map of data and holes, are damaged: {error}"
            ) from error
        if found is None:
            raise DamagedMemberError(f"{self._place(member)}: its headers are gone")
        if number == 0:
            self._for_all = dict(tar.pax_headers)
        if member.issparse():
            if found.sparse is None:
                raise DamagedMemberError(f"{self._place(member)}: it has no map of data and holes")
            found.offset_data += start
            self._sparse[number] = found
        return found

    def _place(self, member: TarMember) -> str:
        return f"{self.path} at byte {member.offset_data}: member {member.name!r}"


def _pieces(ranges: Iterable[tuple[int, int]], read: Callable[[int], memoryview]) -> Iterator[Piece]:
    """Yield pieces of a file's (position, length) ranges, which are contiguous in the archive."""
    for at, length in ranges:
        for done in range(0, length, PIECE_BYTES):
            yield at + done, read(min(PIECE_BYTES, length - done))


def _tar_member(info: TarMember | tarfile.TarInfo) -> UnpackMember:
    kind = _TAR_KINDS.get(info.type, MemberKind.SPECIAL)
    return UnpackMember(info.name, kind, info.size if kind is MemberKind.FILE else 0, info.linkname)


def _tar_attributes(info: tarfile.TarInfo) -> MemberAttributes:
    """Return mode and time, the time in full nanoseconds: tarfile's own is a float."""
    try:
        mtime_ns = Decimal(info.pax_headers.get("mtime", info.mtime)).scaleb(9)
        bounded = mtime_ns if abs(mtime_ns) <= _NS_MOST else Decimal(_NS_MOST).copy_sign(mtime_ns)
        return MemberAttributes(info.mode, int(bounded))
    except (ArithmeticError, ValueError):  # no valid time
        return MemberAttributes(info.mode, 0)


def _sparse_map(info: tarfile.TarInfo, data_bytes: int, place: str) -> list[tuple[int, int]]:
    """Return (position, length) of the data ranges of a sparse file, which are contiguous in the tar.

    Raises DamagedMemberError unless they ascend, end within the file's size, and total at most `data_bytes`.
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


class StreamedMember(NamedTuple):
    """Member of an archive that is read once, from start to end."""

    member: UnpackMember
    attributes: MemberAttributes
    pieces: Iterator[Piece]
    """Pieces of the member, to be read before the next member is requested, if at all."""


def stream_tar(path: str, compression: str) -> Iterator[StreamedMember]:
    """Yield every member of a compressed tar. Reads to the end of the file, where the compression's checksum is.

    Raises ReadError, DatasetError (corrupt, truncated, not a tar) or DamagedMemberError; so do the members' pieces.
    """
    with _open_decompressed(path, compression) as decompressed:
        file = _ForwardFile(path, decompressed)
        try:
            # Opened as a plain file: tarfile's streams copy their buffer for each header.
            with tarfile.TarFile(fileobj=file) as tar:  # type: ignore[arg-type]
                while (info := tar.next()) is not None:
                    tar.members.clear()  # type: ignore[attr-defined]  # each would be kept
                    if file.block[257:265] == tarfile.GNU_MAGIC:
                        # An incremental dump has times in the field of POSIX's name prefix.
                        times = tarfile.nts(file.block[345:500], tar.encoding, tar.errors)  # type: ignore[attr-defined]
                        info.name = info.name.removeprefix(f"{times}/" if times else "")
                    yield StreamedMember(_tar_member(info), _tar_attributes(info), file.pieces(info, tar.offset))
        except _DAMAGED_TAR as error:
            raise _damaged_tar(path, str(error)) from error
        if any(file.block):  # tarfile takes an invalid header for the end of the archive
            raise _damaged_tar(path, "expected a header, got a block that is none")
        while file.read(PIECE_BYTES):
            pass


class _ForwardFile:
    """Forward-only file with the methods that tarfile needs. They raise ReadError or DatasetError."""

    def __init__(self, path: str, file: Any) -> None:
        self._path = path
        self._file = file
        self._at = 0
        self.block = b""
        """Last block read; after tarfile has read a header, that header."""

    def tell(self) -> int:
        return self._at

    def seek(self, at: int) -> None:
        if at < self._at:
            raise _damaged_tar(self._path, "a header points back")
        while self._at < at and self.read(min(at - self._at, PIECE_BYTES)):
            pass

    def read(self, size: int) -> bytes:
        """Read `size` bytes, fewer only at the end."""
        data = b""
        while len(data) < size and (part := self._read(size - len(data))):
            data = data + part if data else part
        self._at += len(data)
        if size == tarfile.BLOCKSIZE:
            self.block = data
        return data

    def pieces(self, info: tarfile.TarInfo, end: int) -> Iterator[Piece]:
        """Yield a member's data; the next header is at `end`."""
        place, ranges = f"{self._path}: member {info.name!r}", [(0, info.size)]
        self.seek(info.offset_data)
        if info.sparse is not None:
            ranges = _sparse_map(info, end - info.offset_data, place)

        def read(size: int) -> memoryview:
            data = self.read(size)
            if len(data) < size:
                raise _damaged_tar(self._path, f"it is cut short inside member {info.name!r}")
            return memoryview(data)

        yield from _pieces(ranges, read)

    def _read(self, size: int) -> bytes:
        try:
            data: bytes = self._file.read(size)
        except Exception as error:  # each format has its own errors; zstd's derives only from Exception
            if isinstance(error, OSError) and error.errno is not None:
                raise unreadable(self._path, error) from error
            raise _damaged_tar(self._path, str(error)) from error
        return data


def _damaged_tar(path: str, why: str) -> DatasetError:
    """Return an error which warns that files already created may be wrong: a checksum covers the whole archive."""
    return DatasetError(
        f"{path}: {why}. Check it with `tar -tf`, copy or write it again, and unpack that into an empty folder: what "
        f"was made of this one may be wrong"
    )


_DECOMPRESSORS = {
    "gzip": ("gzip",),
    "bzip2": ("bz2",),
    "xz": ("lzma",),
    "zstd": ("compression.zstd", "backports.zstd", "pyarrow"),  # in Python since 3.14
}


def _open_decompressed(path: str, compression: str) -> Any:
    """Open a compressed file. Raises ReadError, or DatasetError if no decompressor is installed."""
    for name in _DECOMPRESSORS.get(compression, ()):
        with suppress(ImportError):
            module = import_module(name)
            try:
                return module.input_stream(path, compression="zstd") if name == "pyarrow" else module.open(path)
            except OSError as error:
                raise unreadable(path, error) from error
    hint = " with pip install backports.zstd, or" if compression == "zstd" else ""
    raise DatasetError(
        f"{path}: it is compressed with {compression}, which nothing installed here opens. Open it{hint} with "
        f"{decompress_command(path, compression)}, and unpack what that makes"
    )
