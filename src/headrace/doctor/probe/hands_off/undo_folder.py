"""Undo folder of a session: the records of its journal, and former contents of files.

A record describes a path before the command first changed it; a path may have more, and the first one counts. Records
are bytes, since paths need not be text, and their fields end with NUL, which no path contains: reading them takes no
parser that every Python of the command would have to import.
"""

from __future__ import annotations

import itertools
import os
import time
import zlib
from collections.abc import Iterator

from .. import UNDO

END = b"\0\n"
NUMBERS = ("mode", "size", "mtime_ns", "atime_ns", "ino", "uid", "gid")
"""Numbers of a record, by the names that os.lstat has for them."""

PSEUDO = ("/dev", "/proc", "/run", "/sys")
"""The system's own folders, in which nothing is anybody's work."""
MOST_BYTES = 1 << 30
"""Size beyond which no file is copied: the run would stand still for longer than what is measured."""
SPARE = 2
"""A copy may take one part in so many of the free space."""
CHEAP_BYTES = 1 << 20
"""Size up to which a file is copied rather than given another name in the user's own folder."""
CHUNK_BYTES = 1 << 20
END_BYTES = 1 << 16


class PathState:
    """Kinds of records: what a path was, and how that was saved."""

    ABSENT = "absent"
    LINKED = "linked"
    """A file; `kept` is another name of the very same."""
    COPIED = "copied"
    """A file; `kept` has its content."""
    APPENDED = "appended"
    """A file that is only appended to: its size says enough, and `detail` is a checksum of its last bytes."""
    TOUCHED = "touched"
    """A file of which only mode or times change."""
    LOST = "lost"
    """A file whose content could not be saved; `detail` says why."""
    FOLDER = "folder"
    MOVED = "moved"
    """A folder of very many entries; `kept` is its new name."""
    SYMLINK = "symlink"
    """`detail` is its target."""
    OTHER = "other"
    """A pipe, a socket, a device: left alone."""


class UndoRecord:
    """State of a path. The numbers are those of os.lstat, 0 for a path that did not exist."""

    __slots__ = ("detail", "kept", "kind", "path", *NUMBERS)
    mode: int
    size: int
    mtime_ns: int
    atime_ns: int
    ino: int
    uid: int
    gid: int

    def __init__(
        self, kind: str, path: str, stat: os.stat_result | None = None, *, kept: str = "", detail: str = ""
    ) -> None:
        self.kind = kind
        self.path = path
        for name in NUMBERS:
            setattr(self, name, getattr(stat, f"st_{name}", 0))
        self.kept = kept
        self.detail = detail

    def encoded(self) -> bytes:
        numbers = [str(getattr(self, name)) for name in NUMBERS]
        texts = [self.kind, self.path, *numbers, self.kept, "=" + self.detail]  # no field begins a line
        return b"\0".join(os.fsencode(text) for text in texts) + END


def decoded(data: bytes) -> Iterator[UndoRecord]:
    """Yield the whole records in order. One that was cut short is skipped: what it announces was not done."""
    for line in data.split(END)[:-1]:
        kind, path, *numbers = [os.fsdecode(part) for part in line.split(b"\0")]
        if len(numbers) == len(NUMBERS) + 2 and all(number.lstrip("-").isdigit() for number in numbers[:-2]):
            record = UndoRecord(kind, path, kept=numbers[-2], detail=numbers[-1][1:])
            for name, number in zip(NUMBERS, numbers):
                setattr(record, name, int(number))
            yield record


class UndoFolder:
    """Folder `SESSION/scratch/undo`, which the doctor makes, and the command's processes write to."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.owner = os.path.join(session, UNDO)
        """File with three lines: the doctor's pid, its start in clock ticks since boot, and the folder to be restored,
        whose name may hold line ends. Absent if nothing is to be undone."""
        self.path = os.path.dirname(self.owner)
        self.journal = os.path.join(self.path, "journal")
        self.kept = os.path.join(self.path, "kept")
        """Folder of former contents."""

    def owned(self) -> tuple[int, int, str]:
        """Return the lines of `owner`; the folder to be restored is without symbolic links in its path.

        Raises OSError or ValueError if there is nothing to be undone.
        """
        with open(self.owner, "rb") as file:
            pid, started_ticks, root = file.read().split(b"\n", 2)
        return int(pid), int(started_ticks), os.fsdecode(root)


def temporary() -> str:
    """Return the folder for temporary files, which has many owners. tempfile would take long to import."""
    return os.path.realpath(os.environ.get("TMPDIR") or "/tmp")


def no_work(root: str) -> list[str]:
    """List folders below `root` in which changes are not undone, if it is as much as the whole machine."""
    return [folder for folder in (*PSEUDO, temporary()) if is_below(folder, root) and folder != root]


def is_below(path: str, folder: str) -> bool:
    """Return whether a path is the folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


class CannotStoreError(Exception):
    """Reason why a file's content cannot be saved."""


def save_by_name(folder: UndoFolder, path: str, stat: os.stat_result) -> str:
    """Give a file that is about to lose its name another one, which costs nothing, and return that.

    It is in the undo folder, or next to the file if that is on another file system. Empty for a file that cannot have
    one, has others through which it may be changed, or is cheap to copy.
    """
    name = _new_name()
    beside = os.path.join(os.path.dirname(path), f".headrace-undo-{name}")
    places = [os.path.join(folder.kept, name), *([beside] if stat.st_size > CHEAP_BYTES else [])]
    return next((place for place in places if stat.st_nlink == 1 and _has_linked(path, place)), "")


def save_by_copy(folder: UndoFolder, path: str, stat: os.stat_result) -> str:
    """Copy a file that is about to be written in place, and return the copy's path.

    That costs nothing either if the file system shares blocks (XFS, Btrfs). Raises CannotStoreError.
    """
    size = stat.st_size
    if size > MOST_BYTES:
        raise CannotStoreError(f"a copy would be {size} bytes, which is more than {MOST_BYTES}")
    free = os.statvfs(folder.kept)
    if size > CHEAP_BYTES and size * SPARE > free.f_bavail * free.f_frsize:
        raise CannotStoreError(f"a copy would be {size} bytes, and too little space is left in {folder.kept}")
    kept = os.path.join(folder.kept, _new_name())
    why = "it cannot be read"
    try:
        with open(path, "rb", buffering=0) as source:
            why = f"nothing can be written to {folder.kept}"
            with open(kept, "xb", buffering=0, opener=_open_private) as target:
                why = "it cannot be copied"
                _copy(source.fileno(), target.fileno(), size)
    except OSError as error:
        if why == "it cannot be copied":
            os.unlink(kept)
        raise CannotStoreError(f"{why} ({error.strerror})") from error
    return kept


def _new_name() -> str:
    """Return a name that no other process takes, not even on another machine."""
    return f"{os.getpid()}-{time.monotonic_ns():x}-{next(_numbers)}"


_numbers = itertools.count()


def end_sum(path: str, size: int) -> str:
    """Return a checksum of the last bytes before `size`, which appending does not change; empty if it is unreadable."""
    first = max(0, size - END_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(first)
            return str(zlib.crc32(file.read(size - first) or b""))
    except OSError:
        return ""


def _has_linked(path: str, name: str) -> bool:
    try:
        os.link(path, name, follow_symlinks=False)
    except OSError:
        return False
    return True


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _copy(source: int, target: int, size: int) -> None:
    """Copy by the kernel, which shares blocks if the file system can, or by hand if it cannot copy between the two."""
    left = size
    while left > 0:
        try:
            count = os.copy_file_range(source, target, left)
        except (AttributeError, OSError):
            data = os.read(source, min(left, CHUNK_BYTES))
            count = len(data)
            while data:
                data = data[os.write(target, data) :]
        if not count:
            return  # it became shorter meanwhile
        left -= count
