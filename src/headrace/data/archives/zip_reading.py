"""Decompresses one member of a zip into exactly the bytes that were announced, and never more."""

from __future__ import annotations

import bz2
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

_MIN_DICTIONARY_BYTES = 1 << 12


class InflateError(Exception):
    """The compressed data is damaged, or of another size than announced."""


def inflate(data: bytes, method: int, size: int) -> bytes:
    """`size` bytes. Raises InflateError; KeyError for a method that is not in `METHODS`."""
    # One byte more than expected shows that there is more, and is all that a bomb can make.
    return b"".join(inflate_pieces((data,), method, size, most=size + 1))


def inflate_pieces(chunks: Iterable[bytes], method: int, size: int, *, most: int) -> Iterator[bytes]:
    """What `inflate` gives for the chunks joined, in pieces of up to `most` bytes, so that a member of any size needs
    no more memory than that. The first chunk has all that lies before the compressed data."""
    found = 0
    try:
        for piece in _decompress(iter(chunks), METHODS[method], size, most):
            found += len(piece)
            if found > size:
                raise InflateError(f"expected {size} bytes, got more: what it says of its size is not true")
            yield piece
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, struct.error) as error:
        raise InflateError(f"its compressed data is damaged: {error}") from error
    if found < size:
        raise InflateError(f"expected {size} bytes, got {found}")


class Decompressor(Protocol):
    """As those of bz2 and lzma are."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


def _decompress(
    chunks: Iterator[bytes], begin: Callable[[bytes, int], tuple[Decompressor, bytes]], size: int, most: int
) -> Iterator[bytes]:
    decompressor, data = begin(next(chunks, b""), size + 1)
    while True:
        piece = decompressor.decompress(data, most)
        if piece:
            yield piece
        if decompressor.eof:
            return
        data = b""
        if decompressor.needs_input:
            chunk = next(chunks, None)
            if chunk is None:
                return
            data = chunk


class _Stored:
    """Not compressed at all."""

    eof = False

    def __init__(self) -> None:
        self._rest = b""

    @property
    def needs_input(self) -> bool:
        return not self._rest

    def decompress(self, data: bytes, max_length: int) -> bytes:
        data = self._rest + data
        self._rest = data[max_length:]
        return data[:max_length]


class _Deflate:
    """zlib's decompressor with the interface of the others."""

    def __init__(self) -> None:
        self._inner = zlib.decompressobj(-zlib.MAX_WBITS)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inner.eof

    def decompress(self, data: bytes, max_length: int) -> bytes:
        found = self._inner.decompress(self._inner.unconsumed_tail + data, max_length)
        # With its output full it may hold more, of input that it has taken already.
        self.needs_input = len(found) < max_length and not self._inner.unconsumed_tail
        return found


def _begin_lzma(data: bytes, most: int) -> tuple[Decompressor, bytes]:
    """APPNOTE.TXT 5.8: two bytes of version, the size of the properties, these, and a raw LZMA stream."""
    (length,) = struct.unpack_from("<H", data, 2)
    packed, dictionary = struct.unpack_from("<BI", data, 4)
    if length != 5 or packed >= 9 * 5 * 5:
        raise InflateError("its LZMA properties are not valid")
    # A dictionary larger than the data is never used, and would be allocated.
    dictionary = max(_MIN_DICTIONARY_BYTES, min(dictionary, most))
    bits = {"lc": packed % 9, "lp": packed // 9 % 5, "pb": packed // 45}
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": dictionary, **bits}]
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters), data[4 + length :]


METHODS: dict[int, Callable[[bytes, int], tuple[Decompressor, bytes]]] = {
    zipfile.ZIP_STORED: lambda data, _: (_Stored(), data),
    zipfile.ZIP_DEFLATED: lambda data, _: (_Deflate(), data),
    zipfile.ZIP_BZIP2: lambda data, _: (bz2.BZ2Decompressor(), data),
    zipfile.ZIP_LZMA: _begin_lzma,
}
"""For each, what begins it: from the first chunk and the most bytes that may come, a decompressor and its input."""
