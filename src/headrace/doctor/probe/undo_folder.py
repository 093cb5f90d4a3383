"""Undo folder of a session: the records of its journal, and former contents of files.

Records are bytes, since paths need not be valid text, with fields joined by NUL, which no path contains. Reading them
takes no parser that every Python process of the command would have to import.
"""

from __future__ import annotations

import itertools
import os
import time
import zlib
from collections import namedtuple

from . import UNDO

Record = namedtuple(
    "Record", ["kind", "path", "mode", "size", "mtime_ns", "atime_ns", "ino", "uid", "gid", "kept", "detail"]
)
"""Former state of a path. The numbers are from os.lstat, 0 for a path that did not exist."""
END = b"\0\n"
PSEUDO = ("/dev", "/proc", "/run", "/sys")
"""System folders that hold nobody's work."""
MOST_BYTES = 1 << 30
"""Size above which no file is copied: the run would stall for longer than the time measured."""
SPARE = 2
"""Maximum share of the free space for a copy, as a divisor."""
CHEAP_BYTES = 1 << 20
"""Size up to which a file is always copied, even if only appended to: no event announces a truncation."""
CHUNK_BYTES = 1 << 20
END_BYTES = 1 << 16
UNFINISHED = "new-"
"""Prefix of unfinished files among the former contents."""
ELSEWHERE = ".headrace-undo-"
"""Prefix of a session's folders of former contents on other file systems."""
_numbers = itertools.count()


class UndoFolder:
    """Folder `SESSION/scratch/undo`, created by the doctor and written by the command's processes."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.owner = os.path.join(session, UNDO)
        """File with three lines: the doctor's pid, its start in clock ticks since boot, and the folder to restore.

        The folder's name may contain line feeds. The file is absent if nothing is to be undone.
        """
        self.path = os.path.dirname(self.owner)
        self.journal = os.path.join(self.path, "journal")
        self.kept = os.path.join(self.path, "kept")
        """Folder of former contents."""
        self.elsewhere = f"{ELSEWHERE}{zlib.crc32(os.fsencode(session)):08x}"

    def owned(self) -> tuple[int, int, str]:
        """Return the lines of `owner`; the folder to restore has no symbolic links in its path.

        Raises OSError or ValueError if there is nothing to undo.
        """
        with open(self.owner, "rb") as file:
            pid, started_ticks, root = file.read().split(b"\n", 2)
        return int(pid), int(started_ticks), os.fsdecode(root)

    def append(self, record: Record) -> None:
        """Append a record to the journal. Raises OSError if it is not written completely.

        The journal is opened each time: a script that closes all descriptors may reuse the number for its own file.
        """
        fields = (*record[:-1], "=" + record.detail, ".")  # no field begins a line
        line = b"\0".join(os.fsencode(str(field)) for field in fields)
        descriptor = os.open(self.journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            data = END + line + END  # the previous record may be truncated
            if os.write(descriptor, data) != len(data):
                raise OSError(f"no space is left for {self.journal}")
        finally:
            os.close(descriptor)

    def records(self, begin: int = 0) -> tuple[list[Record], int]:
        """Return the journal's complete records from byte `begin` on, and the position after the last of them.

        A truncated record is skipped: the change that it announces did not happen.
        """
        with open(self.journal, "rb") as file:
            file.seek(begin)
            *lines, rest = file.read().split(END)
            end = file.tell()
        parts = [[os.fsdecode(part) for part in line.split(b"\0")] for line in lines]
        whole = [part for part in parts if len(part) == len(Record._fields) + 1 and part[-1] == "."]
        records = [Record._make((*part[:2], *map(int, part[2:-3]), part[-3], part[-2][1:])) for part in whole]
        return records, end - len(rest)


def new_record(kind: str, path: str, stat: os.stat_result | None = None, *, kept: str = "", detail: str = "") -> Record:
    numbers = (getattr(stat, f"st_{name}", 0) for name in Record._fields[2:-2])
    return Record._make((kind, path, *numbers, kept, detail))


def copied(undo: UndoFolder, path: str, size: int) -> tuple[str, str]:
    """Copy a file into the folder of former contents; return the copy's path, or "" and the reason for failure.

    The copy costs nothing if the file system shares blocks (XFS, Btrfs).
    """
    folder, free = undo.kept, os.statvfs(undo.kept)
    most = min(MOST_BYTES, max(CHEAP_BYTES, free.f_bavail * free.f_frsize // SPARE))
    if size > most:
        return "", f"a copy would be {size} bytes, which is more than {most}"
    name = new_name()
    new, kept = os.path.join(folder, UNFINISHED + name), os.path.join(folder, name)
    try:
        with open(path, "rb") as source, open(new, "xb") as target:
            try:
                while os.copy_file_range(source.fileno(), target.fileno(), MOST_BYTES):
                    pass
            except (AttributeError, OSError):  # not supported by the kernel between these two files; copy manually
                while data := source.read(CHUNK_BYTES):
                    target.write(data)
        os.rename(new, kept)
    except OSError as error:
        if os.path.exists(new):
            os.unlink(new)
        return "", f"it cannot be copied ({error.strerror})"
    return kept, ""


def new_name() -> str:
    """Return a name that no other process uses, not even on another machine."""
    return f"{os.getpid()}-{time.monotonic_ns():x}-{next(_numbers)}"


def temporary() -> str:
    """Return the shared folder for temporary files. Importing tempfile would take long."""
    return os.path.realpath(os.environ.get("TMPDIR") or "/tmp")


def no_work(root: str) -> list[str]:
    """List the folders in `root` in which changes are not undone, relevant if `root` covers most of the machine."""
    return [folder for folder in (*PSEUDO, temporary()) if is_below(folder, root) and folder != root]


def is_below(path: str, folder: str) -> bool:
    """Return True if a path is the folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def end_sum(path: str, size: int) -> str:
    """Return a checksum of the last bytes before `size`, which appending does not change; empty if unreadable."""
    first = max(0, size - END_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(first)
            return str(zlib.crc32(file.read(size - first) or b""))
    except OSError:
        return ""


def lstat(path: str) -> os.stat_result | None:
    """Return os.lstat of a path, or None if nothing is there. Raises OSError if that is uncertain."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
