"""Reads the bytes of one sample, and notices when they are no longer those that were indexed."""

from __future__ import annotations

import os

from .._core import tar_header_check
from ..errors import ChangedError, ReadError

_HEADER_BYTES = 512


def read_file(path: bytes) -> bytes:
    """All bytes of a file. Raises ReadError."""
    try:
        with open(path, "rb", buffering=0) as file:
            return file.readall()
    except OSError as error:
        raise _unreadable(path, 0, error) from error


def read_member(path: bytes, offset: int, length: int, check: int | None) -> bytes:
    """`length` bytes at `offset`; with `check`, the tar header before them must still have that identity.

    Raises ReadError (transport) or ChangedError (the file is no longer what was indexed).
    """
    lead = 0 if check is None else _HEADER_BYTES
    data = _read_range(path, offset - lead, length + lead)
    if len(data) < length + lead:
        raise ChangedError(
            f"{_text(path)} at byte {offset}: expected {length} bytes, got {max(0, len(data) - lead)}: the file has "
            f"become shorter since it was indexed. Open the dataset again"
        )
    if check is not None and tar_header_check(data[:lead]) != check:
        raise ChangedError(
            f"{_text(path)} at byte {offset}: the tar header there is not the one that was indexed: the file has "
            f"changed. Open the dataset again"
        )
    return data[lead:]


def _read_range(path: bytes, offset: int, length: int) -> bytes:
    """Up to `length` bytes; fewer only at the end of the file."""
    parts = []
    try:
        with open(path, "rb", buffering=0) as file:
            while length > 0 and (part := os.pread(file.fileno(), length, offset)):
                parts.append(part)
                offset += len(part)
                length -= len(part)
    except OSError as error:
        raise _unreadable(path, offset, error) from error
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _unreadable(path: bytes, offset: int, error: OSError) -> ReadError:
    hint = (
        "it is gone since it was indexed: open the dataset again"
        if isinstance(error, FileNotFoundError)
        else "check its permissions and the disk"
    )
    return ReadError(f"{_text(path)} at byte {offset}: could not be read: {error.strerror}; {hint}")


def _text(path: bytes) -> str:
    return path.decode("utf-8", "backslashreplace")
