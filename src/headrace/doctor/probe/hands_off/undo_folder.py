"""Undo folder of a session: the records of its journal, and former contents of files."""

from __future__ import annotations

import itertools
import os
import time
import zlib
from collections.abc import Iterator

from .. import UNDO

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


# -- from doctor/probe/hands_off/folder.py: Where a session keeps what is needed to undo its run.


PSEUDO = ("/dev", "/proc", "/run", "/sys")
"""Folders of the system's own, in which nothing is anybody's work."""


class UndoFolder:
    """`SESSION/scratch/undo`. The doctor makes it; the command's processes write in it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.owner = os.path.join(session, UNDO)
        """A file of the doctor's pid, its start in clock ticks since boot, and the folder to be as before; absent where
        nothing is to be undone. The three are lines; a folder's name may hold line ends, so it comes last."""
        self.path = os.path.dirname(self.owner)
        self.journal = os.path.join(self.path, "journal")
        self.kept = os.path.join(self.path, "kept")
        """A folder for former contents."""

    def root(self) -> str:
        """The folder to be as before, with no symbolic link in it."""
        with open(self.owner, "rb") as file:
            return os.fsdecode(file.read().split(b"\n", 2)[2])


def temporary() -> str:
    """The folder of temporary files, which has many owners. Not by tempfile, which takes long to import."""
    return os.path.realpath(os.environ.get("TMPDIR") or "/tmp")


def no_work(root: str) -> list[str]:
    """Folders below `root` in which changes are not undone, where it is as much as the whole machine's."""
    return [folder for folder in (*PSEUDO, temporary()) if is_below(folder, root) and folder != root]


def is_below(path: str, folder: str) -> bool:
    """Whether it is the folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# -- from doctor/probe/hands_off/keep.py: Former contents of files, kept at the least cost that is safe.
#
# A file that is about to lose its name keeps another one, which costs nothing. One that is about to be written in
# place
# is copied, which costs nothing either where the file system shares blocks (XFS, Btrfs).


MOST_BYTES = 1 << 30
"""No larger file is copied: the run would stand still for longer than what is measured."""
SPARE = 2
"""A copy may take one part in so many of the space that is free."""
CHEAP_BYTES = 1 << 20
"""Copied rather than given another name in the user's own folder."""
CHUNK_BYTES = 1 << 20
END_BYTES = 1 << 16


class CannotStoreError(Exception):
    """Says why."""


class ContentStore:
    """Keeps them in the undo folder."""

    def __init__(self, folder: UndoFolder) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def linked(self, path: str, stat: os.stat_result) -> str:
        """Another name of the file: in the undo folder, or where that is on another file system, beside it."""
        if stat.st_nlink != 1:
            raise CannotStoreError("it has other names, through which it may be changed")
        return self._linked(path, stat)

    def copied(self, path: str, stat: os.stat_result, bytes_: int | None = None) -> str:
        """A copy of its first `bytes_`, by default of all."""
        size = stat.st_size if bytes_ is None else bytes_
        if size > MOST_BYTES:
            raise CannotStoreError(f"a copy would be {size} bytes, which is more than {MOST_BYTES}")
        free = os.statvfs(self._folder.kept)
        if size > CHEAP_BYTES and size * SPARE > free.f_bavail * free.f_frsize:
            raise CannotStoreError(f"a copy would be {size} bytes, and too little space is left in {self._folder.kept}")
        return self._copied(path, size)

    def _linked(self, path: str, stat: os.stat_result) -> str:
        try:
            return _link(path, os.path.join(self._folder.kept, self._name()))
        except OSError:
            if stat.st_size <= CHEAP_BYTES:
                raise CannotStoreError("it is on another file system") from None
        try:
            return _link(path, os.path.join(os.path.dirname(path), f".headrace-undo-{self._name()}"))
        except OSError as error:
            raise CannotStoreError(f"it can have no other name ({error.strerror})") from error

    def _copied(self, path: str, size: int) -> str:
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CannotStoreError(f"it cannot be read ({error.strerror})") from error
        try:
            kept, target = self._new_file()
            try:
                _copy(source, target, size)
            except OSError as error:
                os.unlink(kept)
                raise CannotStoreError(f"it cannot be copied ({error.strerror})") from error
            finally:
                os.close(target)
        finally:
            os.close(source)
        return kept

    def _new_file(self) -> tuple[str, int]:
        path = os.path.join(self._folder.kept, self._name())
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotStoreError(f"nothing can be written to {self._folder.kept} ({error.strerror})") from error

    def _name(self) -> str:
        """No other process's either, be it on another machine."""
        return f"{os.getpid()}-{time.monotonic_ns():x}-{next(self._numbers)}"


def end_sum(path: str, size: int) -> str:
    """Of the last bytes before `size`: of a file that was only appended to since, they are still the same. Empty where
    it cannot be read."""
    first = max(0, size - END_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(first)
            return str(zlib.crc32(file.read(size - first) or b""))
    except OSError:
        return ""


def _link(path: str, name: str) -> str:
    os.link(path, name, follow_symlinks=False)
    return name


def _copy(source: int, target: int, size: int) -> None:
    done = 0
    while done < size:
        count = _copy_some(source, target, min(size - done, MOST_BYTES))
        if not count:
            return  # it became shorter meanwhile
        done += count


def _copy_some(source: int, target: int, size: int) -> int:
    """By the kernel, which shares blocks where the file system can; by hand, where it cannot copy between the two."""
    try:
        return os.copy_file_range(source, target, size)
    except (AttributeError, OSError):
        data = os.read(source, min(size, CHUNK_BYTES))
        written = 0
        while written < len(data):
            written += os.write(target, data[written:])
        return written


# -- from doctor/probe/hands_off/records.py: The undo journal: what a path was before the command first changed it.
# One record a path, or more; the first counts.
#
# Bytes, since paths need be no text, and fields that end with NUL, which no path holds: reading it takes no parser
# that
# every Python of the command would have to import.


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


class UndoRecord:
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


def decoded(data: bytes) -> Iterator[UndoRecord]:
    """Those that are whole, in order. What is not is skipped: it was being written when its process was killed, and
    what it announces was not done."""
    for line in data.split(END)[:-1]:
        kind, path, *numbers = [os.fsdecode(part) for part in line.split(b"\0")]
        if len(numbers) + 2 == FIELDS and all(number.lstrip("-").isdigit() for number in numbers[: len(NUMBERS)]):
            record = UndoRecord(kind, path, kept=numbers[-2], detail=numbers[-1][1:])
            for name, number in zip(NUMBERS, numbers):
                setattr(record, name, int(number))
            yield record
