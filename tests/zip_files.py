"""Zips in every form, made by the standard library and changed byte by byte, for tests of what reads them."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import ChangedError, DecodeError, HeadraceError, LimitError, UnsupportedError

LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"
READABLE = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""The methods that a loader reads."""

DAMAGED_CONTENT = bytes(range(250)) * 4
Changes = dict[tuple[bytes, int, str], int]
DAMAGE: dict[str, tuple[Changes, type[HeadraceError], str]] = {
    "encrypted": ({(CENTRAL, 8, "<H"): 1}, UnsupportedError, "the member is encrypted"),
    "patch": ({(CENTRAL, 8, "<H"): 0x20}, UnsupportedError, "the member is a patch of another file"),
    "method": ({(LOCAL, 8, "<H"): 97, (CENTRAL, 10, "<H"): 97}, UnsupportedError, "compressed by method 97"),
    "packed size": ({(CENTRAL, 20, "<I"): 5}, DecodeError, "damaged|expected 1000 bytes"),
    "overlap": ({(CENTRAL, 20, "<I"): 330}, DecodeError, "overlaps the next"),
    "smaller": ({(CENTRAL, 24, "<I"): 7}, DecodeError, "expected 7 bytes, got more"),
    "larger": ({(CENTRAL, 24, "<I"): 5000}, DecodeError, "expected 5000 bytes, got"),
    "bomb": ({(CENTRAL, 24, "<I"): 2**31}, LimitError, "2147483648 bytes, more than max_file_bytes="),
    "method of the header": ({(LOCAL, 8, "<H"): 0}, ChangedError, "local header is not"),
    "name of the header": ({(LOCAL, 30, "<B"): 0x32}, ChangedError, "local header is not"),
    "signature": ({(LOCAL, 0, "<B"): 0}, ChangedError, "local header is not"),
    "CRC": ({(LOCAL, 14, "<I"): 1, (CENTRAL, 16, "<I"): 1}, DecodeError, "expected bytes with CRC 00000001, got"),
    "CRC of the header": ({(CENTRAL, 16, "<I"): 1}, ChangedError, "local header is of other data"),
}
"""What may be wrong with "1.jpg", deflated and of that content: changes of headers, and what a read of it says."""


class Stream(io.BytesIO):
    """Which zipfile cannot go back in, so that sizes come behind the data."""

    def tell(self) -> int:
        raise OSError("a stream")


def zip_of(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip of one member, "a"."""
    return zip_members(path, {"a": content}, method)


def zip_members(path: Path, members: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def patched(path: Path, changes: Changes) -> Path:
    """Sets fields of the headers in place: by signature, offset in the header and format; in every header of a kind."""
    data = bytearray(path.read_bytes())
    for (signature, at, kind), value in changes.items():
        start = data.find(signature)
        while start >= 0:
            struct.pack_into(kind, data, start + at, value)
            start = data.find(signature, start + 4)
    path.write_bytes(data)
    return path


def sized(path: Path, size: int) -> Path:
    """Declares that size for every member."""
    return patched(path, {(LOCAL, 22, "<I"): size, (CENTRAL, 24, "<I"): size})


def written_by_hand(
    path: Path,
    name: bytes,
    content: bytes,
    *,
    flags: int = 0,
    local_extra: bytes = b"",
    central_extra: bytes = b"",
    before: int = 0,
) -> Path:
    """A stored member as other tools write it, `before` bytes behind the zip's beginning, which is sparse."""
    sizes = struct.pack("<III", zlib.crc32(content), len(content), len(content))
    local = LOCAL + struct.pack("<HHHHH", 20, flags, 0, 0, 0x21) + sizes
    local += struct.pack("<HH", len(name), len(local_extra)) + name + local_extra
    far = before >= 0xFFFFFFFF
    central_extra += struct.pack("<HHQ", 1, 8, before) if far else b""
    central = CENTRAL + struct.pack("<HHHHHH", 20, 20, flags, 0, 0, 0x21) + sizes
    central += struct.pack("<HHHHHI", len(name), len(central_extra), 0, 0, 0, 0)
    central += struct.pack("<I", 0xFFFFFFFF if far else before) + name + central_extra
    start = before + len(local) + len(content)
    with path.open("wb") as file:
        file.seek(before)
        file.write(local + content + central + _end(start, len(central)))
    return path


def _end(start: int, size: int) -> bytes:
    if start < 0xFFFFFFFF:
        return b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, size, start, 0)
    large = b"PK\6\6" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, 1, 1, size, start)
    locator = b"PK\6\7" + struct.pack("<IQI", 0, start + size, 1)
    return large + locator + b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, 1, 1, size, 0xFFFFFFFF, 0)
