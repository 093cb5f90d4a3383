"""Places of stored bytes: where the mapped files of a process hold the values of an Arrow column."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Any

MAPS = "/proc/self/maps"
Place = tuple[int, str, int, int]
"""Number of the file, name, first byte, and size of a value."""


def stored_places(column: Any, name: str, files: dict[str, int], until: float) -> list[Place | None]:
    """Return the place of each value of a ChunkedArray of bytes, or of structs of `bytes` and `path`.

    A missing value has none. `files` receives the number of each file. Returns an empty list if a value is in no file,
    or after a time.
    """
    maps = _mappings()
    found: list[Place | None] = []
    starts = [start for start, _, _, _ in maps]
    for chunk in column.chunks:
        names = [name] * len(chunk)
        if str(chunk.type).startswith("struct<"):
            parts = {field.name: part for field, part in zip(chunk.type, chunk.flatten())}
            chunk = parts["bytes"]
            names = [one or name for one in parts["path"].to_pylist()] if "path" in parts else names
        _, offsets, data = chunk.buffers()
        at = bisect_right(starts, data.address) - 1 if data is not None else -1
        start, end, begin, path = maps[at] if at >= 0 else (0, 0, 0, "")
        if time.monotonic() > until or data is None or data.address + data.size > end:
            return []
        ends = memoryview(offsets).cast("q" if "large" in str(chunk.type) else "i")[chunk.offset :]
        begin, number = begin + data.address - start, files.setdefault(path, len(files))
        nulls = chunk.is_null().to_pylist()
        for row, (one, is_null) in enumerate(zip(names, nulls)):
            found.append(None if is_null else (number, one, begin + ends[row], ends[row + 1] - ends[row]))
    return found


def _mappings() -> list[tuple[int, int, int, str]]:
    """Return the files that the process maps: first and last address, first byte, and path, in order."""
    found = []
    with open(MAPS, encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            parts = line.rstrip("\n").split(None, 5)
            if len(parts) == 6 and parts[5].startswith("/"):
                start, end = (int(one, 16) for one in parts[0].split("-"))
                found.append((start, end, int(parts[2], 16), parts[5]))
    return found
