"""Read a member of a zip: locate it behind its local header, inflate and check it. Twin of core/zip/member.cpp."""

from __future__ import annotations

import bz2
import lzma
import struct
import zipfile
import zlib
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NamedTuple

from headrace._core import Limits
from headrace.data.location import Location
from headrace.data.storage.open_file import ReadableFile, read_exactly
from headrace.errors import ChangedError, DecodeError, LimitError, SampleError, UnsupportedError

_MIN_DICTIONARY_BYTES = 1 << 12


class InflateError(Exception):
    """Compressed data that is damaged, or of another size than stated."""


def inflate(data: bytes, method: int, size: int) -> bytes:
    """Return exactly `size` bytes. Raises InflateError, and KeyError for a method that is not in `METHODS`."""
    decompress = METHODS[method]
    try:
        # One byte more than expected reveals extra data, and limits a zip bomb.
        found = data if decompress is None else decompress(data, size + 1)
    except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, struct.error) as error:
        raise InflateError(f"its compressed data is damaged: {error}") from error
    if len(found) > size:
        raise InflateError(f"expected {size} bytes, got more: what it says of its size is not true")
    if len(found) < size:
        raise InflateError(f"expected {size} bytes, got {len(found)}")
    return found


def _decompress_lzma(data: bytes, most: int) -> bytes:
    """Decompress as in APPNOTE.TXT 5.8: two bytes of version, size of the properties, properties, raw LZMA stream."""
    (length,) = struct.unpack_from("<H", data, 2)
    packed, dictionary = struct.unpack_from("<BI", data, 4)
    if length != 5 or packed >= 9 * 5 * 5:
        raise InflateError("its LZMA properties are not valid")
    # A dictionary larger than the data would be allocated for nothing.
    dictionary = max(_MIN_DICTIONARY_BYTES, min(dictionary, most))
    bits = {"lc": packed % 9, "lp": packed // 9 % 5, "pb": packed // 45}
    filters = [{"id": lzma.FILTER_LZMA1, "dict_size": dictionary, **bits}]
    return lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters).decompress(data[4 + length :], most)


METHODS: dict[int, Callable[[bytes, int], bytes] | None] = {
    zipfile.ZIP_STORED: None,
    zipfile.ZIP_DEFLATED: lambda data, most: zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, most),
    zipfile.ZIP_BZIP2: lambda data, most: bz2.BZ2Decompressor().decompress(data, most),
    zipfile.ZIP_LZMA: _decompress_lzma,
}
"""Decompressors by method, with a limit on the output in bytes; None: stored data."""
NATIVE_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Methods that the core inflates; `read_zipped` accepts no others, so it reads the same members as a loader."""
_METHOD_NAMES = {0: "stored", 8: "deflated", 12: "bzip2", 14: "LZMA"}

LOCAL_HEADER_BYTES = 30  # without its name and extra fields
_HEADER = struct.Struct("<6xHH4xI8xHH")  # flags, method, CRC, and the lengths of the name and the extra fields
_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED, _SIZES_FOLLOW, _PATCH, _STRONGLY_ENCRYPTED = 0x1, 0x8, 0x20, 0x40  # flag bits


class ZipEntry(NamedTuple):
    """Fields of a member's index entry that reading needs."""

    offset: int
    """First byte of the local header."""
    packed: int
    """Compressed bytes in the zip."""
    size: int
    """Bytes of data."""
    room: int
    """Bytes from the local header to the next one."""
    method: int
    crc: int
    flags: int
    check: int
    """Expected `local_header_check` of the local header."""


class DamagedEntryError(Exception):
    """Bytes of a member that contradict the central directory."""


class ForeignHeaderError(DamagedEntryError):
    """Local header other than the indexed one, or of other data."""


def local_header_check(method: int, raw_name: bytes) -> int:
    """Return a CRC-32 of the fields that a local header shares with its central-directory entry."""
    return zlib.crc32(raw_name, method)


def refusal(entry: ZipEntry, methods: Collection[int] = METHODS) -> str | None:
    """Return why a member cannot be read, phrased to follow "member 'x' "; None: it can be."""
    if entry.flags & (_ENCRYPTED | _STRONGLY_ENCRYPTED):
        return "is encrypted. Unpack it with another tool"
    if entry.flags & _PATCH:
        return "is a patch of another file. Unpack it with another tool"
    if entry.method not in methods:
        names = ", ".join(name for method, name in _METHOD_NAMES.items() if method in methods)
        return (
            f"is compressed by method {entry.method}; expected one of {sorted(methods)} ({names}). "
            f"Pack it again with one of them"
        )
    return None


def read_entry(file: ReadableFile, entry: ZipEntry) -> bytes:
    """Return a member's data. Raises DamagedEntryError, ReadError, or ChangedError if the file is too short."""
    *first, last = file.readings
    for each in first:
        with suppress(DamagedEntryError):
            return _read_once(each, entry)
    return _read_once(last, entry)


def _read_once(file: ReadableFile, entry: ZipEntry) -> bytes:
    header = read_exactly(file, entry.offset, LOCAL_HEADER_BYTES)
    flags, method, crc, name_bytes, extra_bytes = _HEADER.unpack(header)
    is_header = header.startswith(_SIGNATURE)
    name = read_exactly(file, entry.offset + LOCAL_HEADER_BYTES, name_bytes) if is_header else b""
    if not is_header or local_header_check(method, name) != entry.check:
        raise ForeignHeaderError("its local header is not what the central directory says")
    before = LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    if before + entry.packed > entry.room:
        raise DamagedEntryError("it overlaps the next member, as in a zip bomb")
    try:
        data = inflate(read_exactly(file, entry.offset + before, entry.packed), entry.method, entry.size)
        found = zlib.crc32(data)
        if found != entry.crc:
            raise InflateError(f"expected bytes with CRC {entry.crc:08x}, got {found:08x}")
    except InflateError as error:
        # A header with another CRC than the indexed one belongs to another zip with the same names.
        if not flags & _SIZES_FOLLOW and crc != entry.crc:
            raise ForeignHeaderError(f"{error}: its local header is of other data") from error
        raise DamagedEntryError(str(error)) from error
    return data


def read_zipped(file: ReadableFile, at: Location, *, key: str, field: str) -> bytes:
    """Return the data of the one member at `at`, with the limits and errors of a loader.

    Raises DecodeError, UnsupportedError or LimitError, which name the sample `key` and the `field`, ChangedError, or
    ReadError.
    """
    assert at.offset is not None
    assert at.length is not None
    assert at.check is not None
    assert at.zipped is not None
    packed, room, method, crc, flags = (int(part[0]) for part in at.zipped)
    entry = ZipEntry(int(at.offset[0]), packed, int(at.length[0]), room, method, crc, flags, int(at.check[0]))

    def bad(kind: type[SampleError], why: str) -> SampleError:
        return kind(why, key=key, shard=str(file), offset=entry.offset, field=field)

    why = refusal(entry, NATIVE_METHODS)
    if why is not None:
        raise bad(UnsupportedError, f"zip: the member {why}")
    largest, most = max(entry.size, entry.packed), Limits().max_file_bytes
    if largest > most:
        raise bad(LimitError, f"{largest} bytes, more than max_file_bytes={most}")
    try:
        return read_entry(file, entry)
    except ForeignHeaderError as error:
        raise ChangedError(f"{file} at byte {entry.offset}: {error}: the file has changed. Open it again") from error
    except DamagedEntryError as error:
        raise bad(DecodeError, f"zip: {error}") from error
