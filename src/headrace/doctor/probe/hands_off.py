"""Journal of the files that a measured run changes: copy on first write (docs/doctor/attach.md#the-journal).

Audit events announce changes (https://docs.python.org/3/library/audit_events.html). `os.replace` raises `os.rename`,
`os.unlink` raises `os.remove`, and calls of shutil and pathlib raise the events of the os calls they make.
"""

from __future__ import annotations

import _thread
import json
import os
import shutil
import stat as modes
import sys
import time
from collections import namedtuple
from contextlib import suppress
from itertools import accumulate

from . import UNDO

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

Record = namedtuple("Record", ["path", "mode", "size", "mtime_ns", "uid", "gid", "kept"])
"""State of a path before the command, from os.lstat; mode 0 if nothing was there.

`kept` is the saved file, empty if it could not be saved; or the target of a symbolic link. Without a path, it is an
error of the journal itself.
"""
NAME, WRITE, EMPTY = range(3)
"""Kinds of changes: to a name; in place, attributes included; in place, from an empty file on."""
EVENTS = {
    "open": (),
    "os.chdir": (),
    "os.chmod": ((0, 2, WRITE),),
    "os.chown": ((0, 3, WRITE),),
    "os.link": ((0, 2, NAME), (1, 3, NAME)),
    "os.mkdir": ((0, 2, NAME),),
    "os.remove": ((0, 1, NAME),),
    "os.rename": ((0, 2, NAME), (1, 3, NAME)),
    "os.rmdir": ((0, 1, NAME),),
    "os.symlink": ((1, 2, NAME),),
    "os.truncate": ((0, None, WRITE),),
    "os.utime": ((0, 3, WRITE),),
    "shutil.rmtree": (),
    "sqlite3.connect": (),
}
"""Audit events, with the positions of each changed path and its `dir_fd`, and the kind of the change."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
"""Open flags, none of which is set when a file is only read."""
NO_WORK = ("/dev", "/proc", "/run", "/sys", os.path.realpath(os.environ.get("TMPDIR") or "/tmp"))
"""Folders of the system, and for temporary files."""
MOST_BYTES = 1 << 30
"""Size above which no file is copied: the run would stall for longer than the time measured."""
JOURNAL, KEPT = (os.path.join(os.path.dirname(UNDO), name) for name in ("journal", "kept"))
"""The journal in a session's folder, and the folder of saved files."""
COPY = ".copy"
"""End of the name of a copy."""
_journal: UndoJournal | None = None


def start(session: str) -> None:
    """Record all changes of this process and its forks from now on, for a session whose run is to be undone."""
    global _journal
    if _journal is None:
        _journal = UndoJournal(os.path.realpath(session))
        sys.addaudithook(_audited)


def active() -> UndoJournal | None:
    return _journal


def stop() -> None:
    """Stop recording. Python cannot remove the audit hook, so it stays without effect."""
    global _journal
    _journal = None


def _audited(event: str, arguments: Any, events: Any = EVENTS, writes: int = WRITES, journal_now: Any = active) -> None:
    """Announce a change. Python calls this for every event, `id()` included, even when no globals are left."""
    if event in events and (event != "open" or (type(arguments[0]) is not int and arguments[2] & writes)):
        journal = journal_now()
        if journal is not None:
            journal.guarded(journal.announced, event, *arguments)


class UndoJournal:
    """The session's journal as one process reads and writes it.

    Before the first change of a path, a process saves its file and then appends one record. The first record of a path,
    from any process, thus describes its state before the command; no lock is needed, and further records are redundant.
    """

    def __init__(self, session: str) -> None:
        self._session, self._journal = session, os.path.join(session, JOURNAL)
        root = owner(session)
        self._roots = {root}
        """The folder to restore, and folders elsewhere that this process reached through links in it."""
        self._besides = [session, *no_work(root)]
        self._saved_to: set[str] = set()
        self._known: dict[str, bool] = {}
        """Recorded paths, with True if the command created them."""
        self._links: dict[str, Record] = {}
        """Records with a saved link, by inode."""
        self._read = 0
        self._thread = _thread._local()

    def guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run `work` unless this thread is already inside such a call, whose own changes need no record.

        Never raises, since an exception in an audit hook forbids the audited call.
        """
        if getattr(self._thread, "is_busy", False):
            return
        self._thread.is_busy = True
        try:
            if os.stat(self._journal).st_size != self._read:
                records, self._read = read_records(self._session, self._read)
                for record in records:
                    self._note(record)
            work(*arguments)
        except Exception as error:
            with suppress(OSError):  # the listing of the folder still shows what has changed
                self._append(Record("", 0, 0, 0, 0, 0, f"{type(error).__name__}: {error}"))
        finally:
            self._thread.is_busy = False

    def saves(self, path: str | bytes | os.PathLike[Any], how: int) -> None:
        """Record a file that is saved without an audit event, which is the user's work wherever it is.

        From then on, this process also records changes of the direct entries of its folder: it may be renamed there.
        """
        folder = os.path.dirname(os.path.realpath(os.fsdecode(path)))
        if folder not in NO_WORK:
            self._saved_to.add(folder)
        self._changes(self._place(os.fspath(path), how), how)

    def announced(self, event: str, *arguments: Any) -> None:
        """Record what the operation of an audit event is about to change."""
        if event == "open":
            path, mode, flags = arguments
            # os.open does not announce its `dir_fd`: a relative path may mean another file, which stays in place
            is_sure = mode is not None or os.path.isabs(path)
            empties = flags & os.O_TRUNC and not flags & os.O_EXCL and is_sure
            self._changes(self._place(path, WRITE), EMPTY if empties else WRITE)
        elif event == "sqlite3.connect":  # its library writes to the database and to files next to it
            for suffix in ("", "-journal", "-wal", "-shm"):
                self._changes(self._place(os.fsdecode(arguments[0]) + suffix, WRITE), WRITE)
        elif event in ("os.chdir", "shutil.rmtree"):  # from now on, paths may come without the link
            self._place(arguments[0], WRITE)
        places = [self._place(arguments[at], how, arguments[fd] if fd else -1) for at, fd, how in EVENTS[event]]
        if event == "os.rename" and places[0] is None and self._is_older(arguments[0]):
            places = [place and (place if os.path.lexists(place) else None) for place in places]  # the user's: it stays
        for place, (_, _, how) in zip(places, EVENTS[event]):
            self._changes(place, how)
        if event == "os.rename" and places[0] and not os.path.islink(places[0]):
            for folder, folders, files in os.walk(places[0]):
                for entry in (os.path.join(folder, name) for name in folders + files):
                    self._changes(entry, NAME)
                    self._changes(places[1] and places[1] + entry[len(places[0]) :], NAME)

    def _is_older(self, path: Any) -> bool:
        """Return True if a path existed before the command began."""
        return os.lstat(path).st_ctime_ns < os.stat(os.path.join(self._session, UNDO)).st_mtime_ns

    def _place(self, path: Any, how: int, folder: int = -1) -> str | None:
        """Return the real path of a name in an open folder, or of an open file; None if changes there are not undone.

        Follows a final link unless only the name changes.
        """
        text = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fsdecode(path)
        text = os.path.abspath(text if folder == -1 else os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text))
        head, tail = os.path.split(text)
        real = os.path.join(os.path.realpath(head), tail) if how == NAME else os.path.realpath(text)
        if any(is_below(real, one) for one in self._besides):
            return None
        if not any(is_below(real, one) for one in self._roots):
            if not any(is_below(text, one) for one in self._roots):
                return real if os.path.dirname(real) in self._saved_to else None
            self._roots.add(real if os.path.isdir(real) else os.path.dirname(real))
        return real

    def _changes(self, path: str | None, how: int) -> None:
        """Record a path and its folder. If its file will be written to and is saved as a link, keep its content apart.

        An empty file takes the place of a file that will be truncated. Otherwise a copy is made next to the link.
        """
        if path is None:
            return
        self._record(path)
        self._record(os.path.dirname(path))  # its time changes with its entries
        stat = lstat(path)
        saved = None if stat is None or how == NAME else self._links.get(inode(stat))
        if stat is None or saved is None or not os.access(path, os.W_OK):
            return
        if how == EMPTY:
            with suppress(OSError):
                empty = _unfinished(saved.kept)
                os.close(os.open(empty, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, modes.S_IMODE(stat.st_mode)))
                os.replace(empty, path)
                return
        if (stat.st_size, stat.st_mtime_ns) == (saved.size, saved.mtime_ns):  # else there is a copy, or it is too late
            with suppress(OSError):  # the undo finds that the file has changed
                _copy(saved.kept, saved.kept + COPY)

    def _record(self, path: str) -> None:
        """Record the state of a path that is not known yet, unless it is in a folder that the command created."""
        stat = lstat(path)
        if path in self._known or (stat is not None and any(map(self._known.get, _folders_of(path)))):
            return
        if stat is None:
            self._append(Record(path, 0, 0, 0, 0, 0, ""))
        elif modes.S_IFMT(stat.st_mode) in (modes.S_IFREG, modes.S_IFDIR, modes.S_IFLNK):
            kept = os.readlink(path) if modes.S_ISLNK(stat.st_mode) else ""
            kept = self._saved(path, stat) if modes.S_ISREG(stat.st_mode) else kept
            state = (stat.st_mode, stat.st_size, stat.st_mtime_ns, stat.st_uid, stat.st_gid)
            self._append(Record(path, *state, kept))

    def _saved(self, path: str, stat: os.stat_result) -> str:
        """Save a file; return its other name or its copy, or "" if it cannot be saved.

        The other name is in the session's folder, or in one of ours on the same file system as the file: as far up as
        possible, where the command does not remove or rename it.
        """
        kept = os.path.join(self._session, KEPT)
        for folder in (kept, *(f"{top}/.headrace-undo-{inode(os.stat(kept))}" for top in _folders_of(path))):
            link = os.path.join(folder, inode(stat))
            with suppress(OSError):
                if not os.path.isdir(folder) and os.stat(os.path.dirname(folder)).st_dev == stat.st_dev:
                    self._changes(self._place(folder, NAME), NAME)
                    os.mkdir(folder, 0o700)
                with suppress(FileExistsError):  # the file has two names, or another process was first
                    os.link(path, link, follow_symlinks=False)
                return link
        with suppress(OSError):
            copy = _unfinished(os.path.join(kept, "copy"))
            _copy(path, copy)
            return copy
        return ""

    def _append(self, record: Record) -> None:
        """Append a record in one write. Opens the journal each time: a script may close all descriptors."""
        data = f"\n{json.dumps(record)}\n".encode()  # the previous record may be truncated
        with open(self._journal, "ab", buffering=0) as file:
            if file.write(data) != len(data):
                raise OSError(0, "no space is left for the journal")
        self._note(record)

    def _note(self, record: Record) -> None:
        self._known.setdefault(record.path, record.mode == 0)
        if modes.S_ISREG(record.mode):
            with suppress(OSError):
                self._links.setdefault(inode(os.lstat(record.kept)), record)


def owner(session: str) -> str:
    """Return the folder to restore, without links. Raises OSError if there is nothing to undo."""
    with open(os.path.join(session, UNDO), "rb") as file:
        return os.fsdecode(file.read())


def read_records(session: str, begin: int = 0) -> tuple[list[Record], int]:
    """Return the journal's complete records from byte `begin` on, and the position after the last of them.

    A truncated record is skipped: the change that it announces did not happen.
    """
    records = []
    with open(os.path.join(session, JOURNAL), "rb") as file:
        file.seek(begin)
        *lines, _ = file.read().split(b"\n")
    for line in lines:
        with suppress(ValueError):
            records.append(Record(*json.loads(line)))
    return records, begin + sum(map(len, lines)) + len(lines)


def no_work(root: str) -> list[str]:
    """List the folders below `root` in which changes are not undone, if `root` covers most of the machine."""
    return [folder for folder in NO_WORK if is_below(folder, root) and folder != root]


def is_below(path: str, folder: str) -> bool:
    """Return True if a path is the folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def inode(stat: os.stat_result) -> str:
    return f"{stat.st_dev:x}-{stat.st_ino:x}"


def lstat(path: str) -> os.stat_result | None:
    """Return os.lstat of a path, or None if nothing is there. Raises OSError if that is uncertain."""
    try:
        return os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _folders_of(path: str) -> list[str]:
    """Return the folders around a path, from / on."""
    return list(accumulate(path.split("/")[1:-1], os.path.join, initial="/"))


def _unfinished(path: str) -> str:
    """Return a name that no other thread uses."""
    return f"{path}.{os.getpid()}-{_thread.get_ident():x}-{time.monotonic_ns():x}"


def _copy(path: str, copy: str) -> None:
    """Copy a file. Of several processes, the first to finish has not seen a change yet, so its copy stays."""
    size, part = os.stat(path).st_size, _unfinished(copy)
    if os.path.exists(copy):
        return
    if size > min(MOST_BYTES, shutil.disk_usage(os.path.dirname(copy)).free // 2):
        raise OSError(f"{size} bytes are too many")
    try:
        shutil.copy2(path, part)
        with suppress(FileExistsError):
            os.link(part, copy)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part)
