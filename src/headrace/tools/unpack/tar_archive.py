"""A compressed tar, which can only be read from its beginning to its end, once."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from typing import Any, Self

from headrace.errors import DatasetError, ReadError
from headrace.unpack.decompressed import open_decompressed
from headrace.unpack.members import PIECE_BYTES, Kind, Member, Piece, StreamedMember
from headrace.unpack.ranges import sparse_map
from headrace.unpack.tar_attributes import info_attributes
from headrace.unpack.tar_kinds import kind_of


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
    kind = kind_of(info.type)
    member = Member(info.name, kind, info.size if kind is Kind.FILE else 0, info.linkname)
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
