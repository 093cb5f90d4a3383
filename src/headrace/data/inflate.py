"""Decompresses one member of a zip into exactly the bytes that were announced, and never more."""

from __future__ import annotations

import bz2
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable

_MIN_DICTIONARY_BYTES = 1 << 12


class InflateError(Exception):
    """The compressed data is damaged, or of another size than announced."""


def inflate(data: bytes, method: int, size: int) -> bytes:
    """`size` bytes. Raises InflateError; KeyError for a method that is not in `METHODS`."""
    try:
        # One byte more than expected shows that there is more, and is all that a bomb can make.
        found = METHODS[method](data, size + 1)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, struct.error) as error:
        raise InflateError(f"its compressed data is damaged: {error}") from error
    if len(found) > size:
        raise InflateError(f"expected {size} bytes, got more: what it says of its size is not true")
    if len(found) < size:
        raise InflateError(f"expected {size} bytes, got {len(found)}")
    return found


def _stored(data: bytes, _: int) -> bytes:
    return data


def _deflate(data: bytes, most: int) -> bytes:
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most)


def _bzip2(data: bytes, most: int) -> bytes:
    return bz2.BZ2Decompressor().decompress(data, most)


def _lzma(data: bytes, most: int) -> bytes:
    """APPNOTE.TXT 5.8: two bytes of version, the size of the properties, these, and a raw LZMA stream."""
    (length,) = struct.unpack_from("<H", data, 2)
    packed, dictionary = struct.unpack_from("<BI", data, 4)
    if length != 5 or packed >= 9 * 5 * 5:
        raise InflateError("its LZMA properties are not valid")
    # A dictionary larger than the data is never used, and would be allocated.
    dictionary = max(_MIN_DICTIONARY_BYTES, min(dictionary, most))
    bits = {"lc": packed % 9, "lp": packed // 9 % 5, "pb": packed // 45}
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": dictionary, **bits}]
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters).decompress(data[4 + length :], most)


METHODS: dict[int, Callable[[bytes, int], bytes]] = {
    zipfile.ZIP_STORED: _stored,
    zipfile.ZIP_DEFLATED: _deflate,
    zipfile.ZIP_BZIP2: _bzip2,
    zipfile.ZIP_LZMA: _lzma,
}
