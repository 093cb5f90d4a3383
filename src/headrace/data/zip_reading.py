"""Reads one member of a zip behind its local header, inflated and checked: the twin of core/zip/member.cpp."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator
from typing import NamedTuple

from headrace.data.archives.zip_reading import METHODS, InflateError, inflate_pieces
from headrace.data.reading import read_exactly
from headrace.data.storage.open_file import OpenFile

LOCAL_HEADER_BYTES = 30  # less its name and extra fields
_SIGNATURE = b"PK\x03\x04"
_ENCRYPTED, _SIZES_FOLLOW, _PATCH, _STRONGLY_ENCRYPTED = 0x1, 0x8, 0x20, 0x40  # bits of the flags


class ZipEntry(NamedTuple):
    """What the index knows of a member, as far as reading needs it."""

    offset: int
    """First byte of its local header."""
    packed: int
    """Bytes in the zip."""
    size: int
    """Bytes of data."""
    room: int
    """Bytes from its local header to where the next one begins."""
    method: int
    crc: int
    flags: int
    check: int
    """`local_header_check` of its local header."""


class DamagedEntryError(Exception):
    """The bytes of a member are not what the central directory says of them."""


class ForeignHeaderError(DamagedEntryError):
    """The local header is not the one that was indexed, or is of other data."""


def local_header_check(method: int, raw_name: bytes) -> int:
    """Identity of a local header: CRC-32 over what it must have in common with its entry in the central directory."""
    return zlib.crc32(raw_name, method)


def refusal(entry: ZipEntry, methods: Collection[int] = METHODS) -> str | None:
    """Why a member is not to be read, after "member 'x' "; None: it may be."""
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


def read_entry(file: OpenFile, entry: ZipEntry) -> bytes:
    """A member's data. Raises DamagedEntryError, ReadError, or ChangedError where the file is too short."""
    return b"".join(entry_pieces(file, entry, most=max(entry.packed, entry.size) + 1))


def entry_pieces(file: OpenFile, entry: ZipEntry, *, most: int) -> Iterator[bytes]:
    """A member's data in pieces of up to `most` bytes, with little more memory than that; they are all right only once
    the last has come. Raises as `read_entry` does."""
    header, name = _read_header(file, entry)
    _check_header(header, name, entry)
    chunks = _chunks(file, entry.offset + _header_bytes(header), entry.packed, most)
    crc = 0
    try:
        for piece in inflate_pieces(chunks, entry.method, entry.size, most=most):
            crc = zlib.crc32(piece, crc)
            yield piece
    except InflateError as error:
        raise _damaged(header, entry, str(error)) from error
    if crc != entry.crc:
        raise _damaged(header, entry, f"expected bytes with CRC {entry.crc:08x}, got {crc:08x}")


def _chunks(file: OpenFile, offset: int, size: int, most: int) -> Iterator[bytes]:
    for done in range(0, size, most):
        yield read_exactly(file, offset + done, min(most, size - done))


def _read_header(file: OpenFile, entry: ZipEntry) -> tuple[bytes, bytes]:
    header = read_exactly(file, entry.offset, LOCAL_HEADER_BYTES)
    (name_bytes,) = struct.unpack_from("<H", header, 26)
    return header, read_exactly(file, entry.offset + LOCAL_HEADER_BYTES, name_bytes)


def _check_header(header: bytes, name: bytes, entry: ZipEntry) -> None:
    (method,) = struct.unpack_from("<H", header, 8)
    if not header.startswith(_SIGNATURE) or local_header_check(method, name) != entry.check:
        raise ForeignHeaderError("its local header is not what the central directory says")
    if _header_bytes(header) + entry.packed > entry.room:
        raise DamagedEntryError("it overlaps the next member, as in a zip bomb")


def _header_bytes(header: bytes) -> int:
    name_bytes, extra_bytes = struct.unpack_from("<HH", header, 26)
    total: int = LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    return total


def _damaged(header: bytes, entry: ZipEntry, why: str) -> DamagedEntryError:
    """A header that says its data's CRC, and another than was indexed, is that of a zip with the same names."""
    flags, crc = struct.unpack_from("<6xH6xI", header)
    is_other = not flags & _SIZES_FOLLOW and crc != entry.crc
    return ForeignHeaderError(f"{why}: its local header is of other data") if is_other else DamagedEntryError(why)


_METHOD_NAMES = {0: "stored", 8: "deflated", 12: "bzip2", 14: "LZMA"}
