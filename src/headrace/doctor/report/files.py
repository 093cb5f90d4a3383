"""Files that are there whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path


def can_be_written(path: Path) -> bool:
    """Whether `write_whole` may succeed: known before there is anything to write."""
    if path.exists() and not path.is_file():
        return not path.is_dir() and os.access(path, os.W_OK)
    folder = path.resolve().parent
    return folder.is_dir() and os.access(folder, os.W_OK)


def write_whole(path: Path, pieces: Iterable[str]) -> None:
    """Writes the file under another name and then renames it, so that no half of one is left. What is there and is no
    ordinary file (a pipe, /dev/stdout) is written to as it is.

    Raises OSError with `path` as its file name.
    """
    try:
        if path.exists() and not path.is_file():
            _write(path, pieces)
            return
        target = path.resolve()  # a link stays one
        half = target.with_name(f".{target.name}.{os.getpid()}")
        try:
            _write(half, pieces)
            os.replace(half, target)
        finally:
            half.unlink(missing_ok=True)
    except OSError as error:
        error.filename, error.filename2 = str(path), None
        raise


def _write(path: Path, pieces: Iterable[str]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(pieces)
