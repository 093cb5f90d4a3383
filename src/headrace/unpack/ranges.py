"""Pieces of a file whose bytes lie in an archive as they are: in one range, or the ranges of a sparse file joined."""

from __future__ import annotations

import tarfile
import threading
from collections.abc import Iterator
from typing import cast

from headrace.data.storage.open_file import OpenFile
from headrace.errors import ChangedError, DamagedMemberError
from headrace.unpack.members import PIECE_BYTES, Piece


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
