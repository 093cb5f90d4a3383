"""The undo journal: what a path was before the command first changed it. One record a path, or more; the first counts.

Bytes, since paths need be no text, and fields that end with NUL, which no path holds: reading it takes no parser that
every Python of the command would have to import.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

ABSENT: Final = "absent"
LINKED: Final = "linked"
"""A file; `kept` is another name of the very same."""
COPIED: Final = "copied"
"""A file; `kept` has its content."""
APPENDED: Final = "appended"
"""A file that is only written to behind its end: its size says enough; `detail` is a sum of its last bytes."""
TOUCHED: Final = "touched"
"""A file of which only mode or times are changed."""
LOST: Final = "lost"
"""A file whose content could not be kept; `detail` says why."""
FOLDER: Final = "folder"
MOVED: Final = "moved"
"""A folder with very much in it; `kept` is its new name."""
SYMLINK: Final = "symlink"
"""`detail` is its target."""
OTHER: Final = "other"
"""A pipe, a socket, a device: left alone."""

END = b"\0\n"
NUMBERS = ("mode", "size", "mtime_ns", "atime_ns", "inode", "owner", "group")
FIELDS = 2 + len(NUMBERS) + 2


class Record:
    """The numbers are those of os.lstat, 0 where there was nothing."""

    __slots__ = ("detail", "kept", "kind", "path", *NUMBERS)

    def __init__(
        self,
        kind: str,
        path: str,
        stat: os.stat_result | None = None,
        *,
        kept: str = "",
        detail: str = "",
    ) -> None:
        self.kind = kind
        self.path = path
        self.mode = 0 if stat is None else stat.st_mode
        self.size = 0 if stat is None else stat.st_size
        self.mtime_ns = 0 if stat is None else stat.st_mtime_ns
        self.atime_ns = 0 if stat is None else stat.st_atime_ns
        self.inode = 0 if stat is None else stat.st_ino
        self.owner = 0 if stat is None else stat.st_uid
        self.group = 0 if stat is None else stat.st_gid
        self.kept = kept
        self.detail = detail

    def encoded(self) -> bytes:
        numbers = [str(getattr(self, name)) for name in NUMBERS]
        texts = [self.kind, self.path, *numbers, self.kept, "=" + self.detail]  # no field begins a line
        return b"\0".join(os.fsencode(text) for text in texts) + END


def decoded(data: bytes) -> Iterator[Record]:
    """Those that are whole, in order. What is not is skipped: it was being written when its process was killed, and
    what it announces was not done."""
    for line in data.split(END)[:-1]:
        kind, path, *numbers = [os.fsdecode(part) for part in line.split(b"\0")]
        if len(numbers) + 2 == FIELDS and all(number.lstrip("-").isdigit() for number in numbers[: len(NUMBERS)]):
            record = Record(kind, path, kept=numbers[-2], detail=numbers[-1][1:])
            for name, number in zip(NUMBERS, numbers):
                setattr(record, name, int(number))
            yield record
