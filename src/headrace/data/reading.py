"""Reads the bytes of one sample, and notices when they are no longer those that were indexed."""

from __future__ import annotations

from headrace._core import tar_header_check
from headrace.data.retrying import patiently
from headrace.data.storage.open_file import OpenFile, unreadable
from headrace.errors import ChangedError

_HEADER_BYTES = 512


def read_file(path: bytes) -> bytes:
    """All bytes of a file. Raises ReadError."""

    def read() -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.readall()

    try:
        return patiently(read)
    except OSError as error:
        raise unreadable(path, 0, error) from error


def read_member(file: OpenFile, offset: int, length: int, check: int | None, *, skip: int = 0) -> bytes:
    """`length` bytes from `skip` on of the data at `offset`; with `check`, the tar header before the data must still
    have that identity.

    Raises ReadError (transport) or ChangedError (the file is no longer what was indexed).
    """
    data = read_exactly(file, offset + skip, length)
    # Read apart from the data, which then comes in one piece and is not copied.
    if check is not None and _header_check(file, offset) != check:
        raise ChangedError(
            f"{file} at byte {offset}: the tar header there is not the one that was indexed: the file has changed. "
            f"Open it again"
        )
    return data


def read_exactly(file: OpenFile, offset: int, length: int) -> bytes:
    """Raises ReadError, or ChangedError if fewer bytes are there."""
    data = file.read(offset, length)
    if len(data) < length:
        raise ChangedError(
            f"{file} at byte {offset}: expected {length} bytes, got {len(data)}: the file has become shorter since it "
            f"was indexed. Open it again"
        )
    return data


def _header_check(file: OpenFile, offset: int) -> int:
    return tar_header_check(read_exactly(file, offset - _HEADER_BYTES, _HEADER_BYTES))
