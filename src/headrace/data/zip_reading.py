"""Where the data of a zip's member begins, checked against what the central directory says of it."""

from __future__ import annotations

import struct

from .open_file import OpenFile
from .reading import read_exactly
from .zip_members import LOCAL_HEADER_BYTES, ZipMembers, local_header_check

_SIGNATURE = b"PK\x03\x04"


class LocalHeaderError(Exception):
    """A member's local header is not what the central directory says."""


def data_start(file: OpenFile, members: ZipMembers, number: int) -> int:
    """First byte of the member's data, which all lies ahead of the next member.

    Raises LocalHeaderError, ReadError or ChangedError (the file is too short).
    """
    member = members.member(number)
    header = read_exactly(file, member.header_offset, LOCAL_HEADER_BYTES)
    method, name_bytes, extra_bytes = struct.unpack_from("<8xH16xHH", header)
    name = read_exactly(file, member.header_offset + LOCAL_HEADER_BYTES, name_bytes)
    if not header.startswith(_SIGNATURE) or local_header_check(method, name) != members.check[number]:
        raise LocalHeaderError("its local header is not what the central directory says")
    start: int = member.header_offset + LOCAL_HEADER_BYTES + name_bytes + extra_bytes
    if start + member.compress_size > members.end[number]:
        raise LocalHeaderError("it overlaps the next member, as in a zip bomb")
    return start
