"""Journal of the user's files that a measured run changes, saved so that the changes can be undone.

Audit events announce changes (https://docs.python.org/3/library/audit_events.html). `os.replace` raises `os.rename`,
`os.unlink` raises `os.remove`, and calls of shutil and pathlib raise the events of the os calls they make.

All processes of the command append to one journal. Each record is one write, after the former state is saved and before
the change. The first record of a path thus describes its state before the command: no lock is needed, and a second
record is merely redundant.
"""

from __future__ import annotations

import _thread
import os
import stat as modes
import sys
from collections.abc import Iterator
from contextlib import suppress

from .undo_folder import (
    CHEAP_BYTES,
    UNFINISHED,
    Record,
    UndoFolder,
    copied,
    end_sum,
    is_below,
    lstat,
    new_name,
    new_record,
    no_work,
    temporary,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

TOUCH, COPY, LINK, LEAVE = ("touched",), ("copied",), ("linked", "copied"), ("copied", "linked")
"""Ways to save a file, best first, by the change to come.

The changes are: new mode or append, in-place write, unlinked name, move to a place where changes are not observed.
"""
EVENTS = {
    "open": (),
    "os.chdir": (),
    "os.chmod": ((0, 2, TOUCH),),
    "os.chown": ((0, 3, TOUCH),),
    "os.link": ((0, 2, LINK), (1, 3, LINK)),
    "os.mkdir": ((0, 2, LINK),),
    "os.remove": ((0, 1, LINK),),
    "os.rename": (),
    "os.rmdir": ((0, 1, LINK),),
    "os.symlink": ((1, 2, LINK),),
    "os.truncate": ((0, None, COPY),),
    "os.utime": ((0, 3, TOUCH),),
    "shutil.rmtree": (),
    "sqlite3.connect": (),
}
"""Audit events, with the positions of each changed path and its `dir_fd`, and the way to save.

Other events have a method.
"""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
"""Open flags, none of which is set when a file is only read."""
_journal: UndoJournal | None = None
_is_hooked = False


def start(session: str) -> None:
    """Record all changes of this process and its forks from now on, for a session whose run is to be undone."""
    global _journal, _is_hooked
    if _journal is None:
        folder = UndoFolder(os.path.realpath(session))
        _journal = UndoJournal(folder, folder.owned()[2])
    if not _is_hooked:
        sys.addaudithook(_audit_hook())
        _is_hooked = True


def active() -> UndoJournal | None:
    return _journal


def stop() -> None:
    """Stop recording. Python cannot remove the audit hook, so it stays without effect."""
    global _journal
    _journal = None


def _audit_hook() -> Callable[[str, tuple[Any, ...]], None]:
    """Return the audit hook. Python calls it for every event, `id()` included, so it returns after one look-up.

    An exception would forbid the audited call. Anybody may raise events of these names with any arguments, even when no
    globals are left.
    """
    events, journal_now, writes = EVENTS, active, WRITES

    def audited(event: str, arguments: tuple[Any, ...]) -> None:
        if event in events:
            if event == "open":
                path, _, flags = arguments if len(arguments) == 3 else (0, 0, 0)
                if type(path) is int or type(flags) is not int or not flags & writes:
                    return  # only read, or already open
            journal = journal_now()
            if journal is not None:
                journal.guarded(journal.announced, event, *arguments)

    return audited


class UndoJournal:
    """The session's journal as one process reads and writes it."""

    def __init__(self, folder: UndoFolder, root: str) -> None:
        self._folder = folder
        self._root = root
        self._roots = {root}
        """The folder to restore, and folders elsewhere that this process reached through links in it."""
        self._besides = [folder.session, *no_work(root)]
        self._saved_to: set[str] = set()
        self._known: dict[str, bool] = {}
        """Recorded paths, with True if the record holds the complete former state."""
        self._made: set[str] = set()
        self._linked: dict[int, dict[str, str]] = {}
        """Paths with a linked former file and its saved name, by inode; no name of such a file may be written to."""
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
            self._catch_up()
            work(*arguments)
        except Exception as error:
            try:
                self._tell(new_record("lost", "", detail=f"{type(error).__name__}: {error}"))
            except OSError:  # the listing of the folder still shows what has changed
                return
        finally:
            self._thread.is_busy = False

    def saves(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Record a checkpoint, which is the user's work wherever it is saved.

        From then on, this process also records changes of the direct entries of its folder: the checkpoint may be
        renamed there.
        """
        text = os.fsdecode(path)
        folder = os.path.dirname(os.path.realpath(text))
        if folder != temporary():
            self._saved_to.add(folder)
        place = self.place(text, follow=True)
        if place is not None:
            self._empties(place)

    def announced(self, event: str, *arguments: Any) -> None:
        """Record what the operation of an audit event is about to change."""
        if event == "open":
            self._opens(*arguments)
        elif event == "os.rename":
            self._renames(*arguments)
        elif event == "sqlite3.connect":
            self._connects(*arguments)
        elif event in ("os.chdir", "shutil.rmtree"):  # from now on paths may come without the link
            place = self.place(_named(arguments[0], -1), follow=True)
            self._roots |= set() if place is None or is_below(place, self._root) else {place}
        for at, folder_at, how in EVENTS[event]:
            path = _named(arguments[at], -1 if folder_at is None else arguments[folder_at])
            self._changes(self.place(path, follow=how != LINK), how)

    def place(self, path: str | bytes, *, follow: bool) -> str | None:
        """Return the real path, following a final link if `follow`; None if changes there are not undone."""
        try:
            text = os.path.abspath(os.fsdecode(path))
        except FileNotFoundError:  # the current folder was removed
            return None
        head, tail = os.path.split(text)
        real = os.path.realpath(text) if follow or not tail else os.path.join(os.path.realpath(head), tail)
        if any(is_below(real, one) for one in self._besides):
            return None
        is_covered = any(is_below(name, one) for name in (real, text) for one in self._roots)
        return real if is_covered or os.path.dirname(real) in self._saved_to else None

    def _opens(self, path: Any, mode: str | None, flags: int) -> None:
        """Record an open for writing.

        `os.open` does not announce its `dir_fd`. A relative path may therefore mean another file, so the file at that
        path is left in place.
        """
        place = self.place(path, follow=True)
        if flags & os.O_EXCL or not flags & (WRITES & ~os.O_CREAT):
            self._changes(place, LINK)
        elif flags & os.O_TRUNC and (mode is not None or os.path.isabs(path)):
            self._empties(place)
        else:
            stat = lstat(place or "")
            is_long = stat is not None and stat.st_size > CHEAP_BYTES
            self._changes(place, TOUCH if flags & os.O_APPEND and not flags & os.O_TRUNC and is_long else COPY)

    def _empties(self, path: str | None) -> None:
        """Record a path about to be rewritten: link its file under another name and leave an empty file."""
        stat = lstat(path or "")
        may_link = stat and modes.S_ISREG(stat.st_mode) and (stat.st_nlink == 1 or stat.st_ino in self._linked)
        self._changes(path, LINK if may_link else COPY)
        if path and stat and stat.st_ino in self._linked and not self._replace_by_twin(path, stat):
            self._changes(path, COPY)

    def _renames(self, source: Any, target: Any, source_folder: int, target_folder: int) -> None:
        to = _named(target, target_folder)
        old, new = self.place(_named(source, source_folder), follow=False), self.place(to, follow=False)
        entries = [] if old is None else [old]
        if old is not None and os.path.isdir(old) and not os.path.islink(old):
            entries += [os.path.join(top, name) for top, folders, files in os.walk(old) for name in folders + files]
        for entry in entries:
            if not self._is_made(entry):
                self._changes(entry, LEAVE if new is None else LINK)
            if new is not None and entry in self._known:  # otherwise the entry belongs to another program
                self._changes(new + entry[len(entries[0]) :], LINK)
        self._changes(new, LINK)

    def _connects(self, database: Any) -> None:
        """Record a database of sqlite3, which itself writes to the database and to files next to it."""
        text = os.fsdecode(database)
        text = text[len("file:") :].partition("?")[0] if text.startswith("file:") else text
        if text not in ("", ":memory:"):
            for suffix in ("", "-journal", "-wal", "-shm"):
                self._changes(self.place(text + suffix, follow=True), COPY)

    def _changes(self, path: str | None, how: tuple[str, ...]) -> None:
        """Record the state of a path if unknown, saving a file by the first way in `how` that works.

        Before a linked file is written to, it is copied for every path it was linked for.
        """
        if path is None:
            return
        stat = lstat(path) if self._linked and how in (TOUCH, COPY) else None
        if stat is not None:
            for former in self._linked.pop(stat.st_ino, ()):
                self._tell(self._saved(former, path, stat, COPY))
        parent = os.path.dirname(path)
        if path != self._root and parent not in self._known:  # its time changes with its entries
            self._tell(self._state(parent, TOUCH))
        if path not in self._known or (how != TOUCH and not self._known[path]):
            self._tell(self._state(path, how))

    def _state(self, path: str, how: tuple[str, ...]) -> Record:
        stat = None if self._is_made(path) else lstat(path)
        if stat is None:
            return new_record("absent", path)
        if modes.S_ISREG(stat.st_mode):
            return self._saved(path, path, stat, how)
        if modes.S_ISDIR(stat.st_mode):
            return new_record("folder", path, stat)
        if modes.S_ISLNK(stat.st_mode):
            return new_record("symlink", path, stat, detail=os.readlink(path))
        return new_record("lost", path, stat, detail="it is a pipe, a socket or a device")

    def _saved(self, path: str, source: str, stat: os.stat_result, how: tuple[str, ...]) -> Record:
        """Save the former file of a path, now at `source`."""
        if how == TOUCH:
            return new_record("touched", path, stat, detail=end_sum(path, stat.st_size))
        faults = []
        for kind in how:
            kept, why = self._link(source, stat) if kind == "linked" else copied(self._folder, source, stat.st_size)
            if kept:
                return new_record(kind, path, stat, kept=kept)
            faults.append(why)
        return new_record("lost", path, stat, detail="".join(faults))

    def _link(self, path: str, stat: os.stat_result) -> tuple[str, str]:
        """Return another name for a file at no cost, with the return values of `copied`."""
        for folder in self._folders(path, stat.st_dev):
            kept = os.path.join(folder, new_name())
            with suppress(OSError):
                os.link(path, kept, follow_symlinks=False)
                return kept, ""
        return "", ""

    def _folders(self, path: str, device: int) -> Iterator[str]:
        """Yield folders that can hold a link to the file: the session's, or one of ours on the other file system.

        Folders near the root come first, since the command may remove or rename folders near the file.
        """
        yield self._folder.kept
        above = [path]
        while above[-1] != "/":
            above.append(os.path.dirname(above[-1]))
        for top in above[:0:-1]:
            if os.lstat(top).st_dev != device or self._is_made(top):
                continue
            folder = os.path.join(top, self._folder.elsewhere)
            if folder not in self._known:
                if is_below(top, self._root):
                    self._changes(top, TOUCH)
                self._tell(new_record("absent", folder))
                with suppress(OSError):  # another process created it first, or this user has no permission
                    os.mkdir(folder, 0o700)
            yield folder

    def _replace_by_twin(self, path: str, stat: os.stat_result) -> bool:
        """Replace a file atomically by an empty one of the same mode and owner; return False on failure."""
        names = self._linked.get(stat.st_ino)
        if not names or not os.access(path, os.W_OK):
            return False
        twin = os.path.join(os.path.dirname(next(iter(names.values()))), UNFINISHED + new_name())
        try:
            os.close(os.open(twin, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            os.chown(twin, stat.st_uid, stat.st_gid)
            os.chmod(twin, modes.S_IMODE(stat.st_mode))
            os.replace(twin, path)
        except OSError:
            return False
        return True

    def _is_made(self, path: str) -> bool:
        """Return True if the command created the path or a folder around it, so that the path did not exist before."""
        while self._made and path not in self._made and path != "/":
            path = os.path.dirname(path)
        return path in self._made

    def _catch_up(self) -> None:
        """Read the records that other processes have appended to the journal."""
        if os.stat(self._folder.journal).st_size != self._read:
            records, self._read = self._folder.records(self._read)
            for record in records:
                self._note(record)

    def _tell(self, record: Record) -> None:
        self._folder.append(record)
        self._note(record)

    def _note(self, record: Record) -> None:
        path = record.path
        if record.kind == "absent" and path not in self._known:
            self._made.add(path)
        elif record.kind == "linked":
            self._linked.setdefault(record.ino, {})[path] = record.kept
        elif record.kind == "copied":
            self._linked.pop(record.ino, None)
        self._known[path] = self._known.get(path, False) or record.kind != "touched"


def _named(path: Any, folder: int) -> str:
    """Return the path of an open file, or of a name in an open folder."""
    if isinstance(path, int):
        return os.readlink(f"/proc/self/fd/{path}")
    text = os.fsdecode(path)
    if folder == -1 or os.path.isabs(text):  # no `dir_fd` was given
        return text
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
