"""Tars that are compressed as a whole: nothing in them can be read at random."""

from __future__ import annotations

import os

from headrace.errors import DatasetError

COMPRESSED = {
    b"\x1f\x8b": ("gzip", "gunzip"),
    b"BZh": ("bzip2", "bunzip2"),
    b"\xfd7zXZ\0": ("xz", "unxz"),
    b"\x28\xb5\x2f\xfd": ("zstd", "unzstd"),
    b"\x04\x22\x4d\x18": ("lz4", "unlz4"),
}


def refuse_compressed(path: str) -> None:
    """Raises DatasetError if the file at `path` begins as a compressed one does."""
    name = compression_of(path)
    if name is not None:
        raise DatasetError(
            f"{path}: expected a plain tar, got one compressed with {name}, whose members cannot be read at "
            f"random. Decompress it: {decompress_command(path, name)}"
        )


def compression_of(path: str) -> str | None:
    """The format that the file at `path` begins as: gzip, bzip2, xz, zstd or lz4; None: another, or unreadable."""
    try:
        with open(path, "rb") as file:
            start = file.read(6)
    except OSError:
        return None  # whoever reads on reports it, with its cause
    return next((name for magic, (name, _) in COMPRESSED.items() if start.startswith(magic)), None)


def decompress_command(path: str, name: str) -> str:
    """What decompresses the file at `path`, in a shell."""
    command = next(command for known, command in COMPRESSED.values() if known == name)
    return f"{command} -k {os.path.basename(path)}"
