"""A tar member's permissions and time, which the index does not keep, from the blocks before its data.

Layout of POSIX ustar and PAX (IEEE Std 1003.1, pax) with GNU's base-256 numbers.
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from math import isfinite

from headrace.unpack.members import Attributes

BLOCK_BYTES = 512
_MODE, _SIZE, _MTIME, _TYPE = slice(100, 108), slice(124, 136), slice(136, 148), slice(156, 157)
_SECOND_NS = 10**9
_NS_MOST = 2**63 - 1
"""What os.utime takes."""
_RECORD = re.compile(rb"(\d{1,7}) ")
_SECONDS = re.compile(rb"(-?)(\d{1,12})(?:\.(\d*))?")


def info_attributes(info: tarfile.TarInfo) -> Attributes:
    """Of a header that tarfile has read."""
    exact = seconds_to_ns(info.pax_headers.get("mtime", "").encode("utf-8", "replace"))
    return Attributes(info.mode, _clamp(int(info.mtime) * _SECOND_NS) if exact is None else exact)


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
