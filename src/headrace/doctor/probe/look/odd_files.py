"""Listed files that cannot be pictures: missing, empty, of another kind, or cut short."""

from __future__ import annotations

import os
import time
from typing import Any

from .column_sources import Column
from .raw_samples import spread

_KINDS: dict[str, tuple[Any, bytes]] = {
    ".jpg": (b"\xff\xd8", b"\xff\xd9"),
    ".jpeg": (b"\xff\xd8", b"\xff\xd9"),
    ".png": (b"\x89PNG", b"IEND\xaeB`\x82"),
    ".gif": (b"GIF8", b""),
    ".bmp": (b"BM", b""),
    ".webp": (b"RIFF", b""),
    ".tif": ((b"II", b"MM"), b""),
    ".tiff": ((b"II", b"MM"), b""),
}
"""First bytes of a file by its suffix, and bytes near its end."""
MOST_ODD = 2
_MOST_FILES, _MOST_S = 4096, 1.5
_END = 64


def odd_rows(columns: list[Column]) -> list[int]:
    """Return samples whose files are no pictures of their suffix, as far as a column lists files by whole paths."""
    until = time.monotonic() + _MOST_S
    for column in columns:
        paths: list[Any] = [value for chunk in column.chunks() for value in chunk]
        if not paths or not all(isinstance(path, str) and _suffix(path) in _KINDS for path in paths):
            continue
        if not os.path.dirname(paths[0]) or not any(map(os.path.exists, paths[:8])):
            continue
        found: list[int] = []
        for row in spread(len(paths), min(_MOST_FILES, len(paths))) if len(paths) > 1 else [0]:
            if time.monotonic() > until or len(found) == MOST_ODD:
                break
            if not _is_whole(paths[row]):
                found.append(row)
        return found
    return []


def _suffix(path: str) -> str:
    return os.path.splitext(path)[1].lower()


def _is_whole(path: str) -> bool:
    begin, end = _KINDS[_suffix(path)]
    try:
        with open(path, "rb") as file:
            if not file.read(8).startswith(begin):
                return False
            file.seek(-min(_END, os.fstat(file.fileno()).st_size), os.SEEK_END)
            return end in file.read(_END)
    except OSError:
        return False
