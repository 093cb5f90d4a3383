"""A file's bytes, from its pieces to a disk, or compared with what is there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from headrace.unpack.members import PIECE_BYTES, Piece

_ZEROS = memoryview(bytes(PIECE_BYTES))


def write_pieces(descriptor: int, pieces: Iterable[Piece], size: int) -> None:
    """Makes an empty file of `size` bytes: `pieces`, and holes between them. Raises OSError."""
    end = 0
    for at, data in pieces:
        end = at + len(data)
        while data:
            written = os.pwrite(descriptor, data, at)
            at, data = at + written, data[written:]
    if end < size:
        os.ftruncate(descriptor, size)


def holds_pieces(descriptor: int, pieces: Iterable[Piece], size: int) -> bool:
    """Whether the file has `size` bytes, those of `pieces` and zeros between them. Raises OSError."""
    if os.fstat(descriptor).st_size != size:
        return False
    buffer = memoryview(bytearray(PIECE_BYTES))
    return all(_holds(descriptor, at, data, buffer) for at, data in _with_zeros(pieces, size))


def _holds(descriptor: int, at: int, data: memoryview, buffer: memoryview) -> bool:
    while data:
        got = os.preadv(descriptor, [buffer[: len(data)]], at)
        if got == 0 or buffer[:got] != data[:got]:
            return False
        at, data = at + got, data[got:]
    return True


def _with_zeros(pieces: Iterable[Piece], size: int) -> Iterator[Piece]:
    """`pieces`, and zeros wherever they leave a hole."""
    end = 0
    for at, data in pieces:
        yield from _zeros(end, at)
        yield at, data
        end = at + len(data)
    yield from _zeros(end, size)


def _zeros(start: int, stop: int) -> Iterator[Piece]:
    for at in range(start, stop, PIECE_BYTES):
        yield at, _ZEROS[: stop - at]
