"""Journal of what this process is about to change, written before it does."""

from __future__ import annotations

import _thread
import os
import stat as modes

from .undo_folder import (
    CHEAP_BYTES,
    END,
    CannotStoreError,
    PathState,
    UndoFolder,
    UndoRecord,
    decoded,
    end_sum,
    is_below,
    no_work,
    save_by_copy,
    save_by_name,
    temporary,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

TOUCH, APPEND, WHOLE = range(3)
"""How much of a file's former state a record gives: its mode and times, also its size, also its content."""
_GIVES = {PathState.TOUCHED: TOUCH, PathState.APPENDED: APPEND}
MOST_ENTRIES = 10_000
"""Entries of a renamed folder beyond which it is moved back as a whole."""


class UndoJournal:
    """The session's journal, to which every process appends.

    Each record is one write, so that a process that is killed leaves the journal whole, and is there before the change
    that it announces. A path's first record is of its state before the command: nobody changes a path before a record
    of it is there. So no lock is needed, and a second record is only a waste. A file that is saved by another name is
    not written to until its path has another file, or it was copied.
    """

    def __init__(self, folder: UndoFolder, root: str) -> None:
        self._folder = folder
        self._root = root
        self._folders: set[str] = set()
        self._besides = [folder.session, *no_work(root)]
        self._known: dict[str, int] = {}
        self._made: set[str] = set()
        self._kept: dict[str, int] = {}
        """Inodes of the files that were given another name, by path."""
        self._read = 0
        self._thread = _thread._local()

    def guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Do `work` unless this thread is within another, whose own changes need no record.

        Never raises, since an audit hook that raises forbids what is audited.
        """
        if getattr(self._thread, "is_busy", False):
            return
        self._thread.is_busy = True
        try:
            work(*arguments)
        except Exception as error:
            try:
                self._write(UndoRecord(PathState.LOST, "", detail=f"{type(error).__name__}: {error}"))
            except OSError:  # the listing of the folder still shows what has changed
                return
        finally:
            self._thread.is_busy = False

    def saves(self, path: str | bytes | os.PathLike[Any]) -> None:
        """Record a checkpoint, which is the user's work wherever it is saved.

        From then on this process records the changes of its folder's own entries, too: it may be renamed there.
        """
        text = os.fsdecode(path)
        folder = os.path.dirname(os.path.realpath(text))
        if folder != temporary():
            self._folders.add(folder)
        place = self.place(text, follow=True)
        if place is not None:
            self.empties(place)

    def place(self, path: str | bytes, *, follow: bool) -> str | None:
        """Return the real path, with `follow` of what it is a link to; None if changes there are not undone."""
        try:
            text = os.path.abspath(os.fsdecode(path))
        except FileNotFoundError:  # the current folder was removed
            return None
        head, tail = os.path.split(text)
        real = os.path.realpath(text) if follow or not tail else os.path.join(os.path.realpath(head), tail)
        if any(is_below(real, one) for one in self._besides):
            return None
        is_covered = is_below(real, self._root) or is_below(text, self._root) or os.path.dirname(real) in self._folders
        return real if is_covered else None

    def touches(self, path: str) -> None:
        """Record a path whose mode or times are about to change."""
        self._copy_what_is_kept(path)
        self._before(path, PathState.TOUCHED)

    def appends(self, path: str) -> None:
        """Record a path that is about to be appended to."""
        self._copy_what_is_kept(path)
        self._before(path, PathState.APPENDED)

    def writes(self, path: str) -> None:
        """Record a path that is about to be written in place, or may be."""
        self._copy_what_is_kept(path)
        self._before(path, PathState.COPIED)

    def empties(self, path: str) -> None:
        """Record a path that is about to be rewritten: its file gets another name, and its name a new file."""
        if self._knows(path, WHOLE) and not self._is_what_is_kept(path):
            return
        new = self._twin(path)
        if new is None:
            self.writes(path)
            return
        try:
            if self._before(path, PathState.LINKED) == PathState.LINKED or self._is_what_is_kept(path):
                try:
                    os.replace(new, path)  # in one step, so that the path is never missing
                except OSError:  # it will be written in place, and what another name saves with it
                    self._write(self._state(path, PathState.COPIED))
        finally:
            if os.path.lexists(new):
                os.unlink(new)

    def removes(self, path: str) -> None:
        """Record a path that is about to lose its name, or to give it to another file."""
        self._before(path, PathState.LINKED)

    def makes(self, path: str) -> None:
        """Record a path that is about to be created, unless it exists."""
        if not os.path.lexists(path):
            self._before(path, PathState.LINKED)

    def moves(self, path: str, to: str, *, is_covered: bool) -> None:
        """Record a path that is about to get another name, which may be written in place, and what had that name.

        `is_covered` says whether changes are undone there.
        """
        entries = self._entries(path)
        if len(entries) > MOST_ENTRIES:
            self._before(path, PathState.MOVED, moved_to=to)
            return
        for entry in entries:
            self._before(entry, PathState.MOVED)
        if is_covered:
            self.removes(to)
            known = list(self._known) if os.path.isdir(path) else []
            for entry in [name for name in known if name.startswith(path + "/")]:
                self.removes(to + entry[len(path) :])

    def _before(self, path: str, kind: str, *, moved_to: str = "") -> str:
        """Record what the path is, if that is not known, and return the record's kind, if any.

        A file is saved as one of that `kind`. `moved_to` is the new name of a folder that is moved as a whole.
        """
        parent, wanted = os.path.dirname(path), _GIVES.get(kind, WHOLE)
        is_known = self._knows(path, wanted)
        knows_parent = path == self._root or self._knows(parent, TOUCH)
        if is_known and knows_parent:
            return ""
        self._catch_up()
        if not knows_parent and not self._knows(parent, TOUCH):  # its time changes with its entries
            self._tell(self._state(parent, PathState.TOUCHED))
        if is_known or self._knows(path, wanted):
            return ""
        record = self._state(path, kind)
        if moved_to and record.kind == PathState.FOLDER:
            record = UndoRecord(PathState.MOVED, path, os.lstat(path), kept=moved_to)
        self._tell(record)
        return record.kind

    def _is_what_is_kept(self, path: str) -> bool:
        """Return whether the path still has the file that another name saves.

        What was to remove or to replace it has failed, as a move from another file system does, or another process is
        about to do so.
        """
        try:
            return path in self._kept and os.lstat(path).st_ino == self._kept[path]
        except OSError:
            return False

    def _copy_what_is_kept(self, path: str) -> None:
        """Copy a file that another name saves, before it is written in place by either name."""
        if self._is_what_is_kept(path):
            self._tell(self._state(path, PathState.COPIED))
            self._kept.pop(path, None)

    def _tell(self, record: UndoRecord) -> None:
        self._write(record)
        self._note(record)

    def _knows(self, path: str, wanted: int) -> bool:
        return self._known.get(path, -1) >= wanted

    def _is_made(self, path: str) -> bool:
        """Return whether the command created the path or a folder around it, so that it did not exist before."""
        while self._made and path not in self._made:
            path, below = os.path.dirname(path), path
            if path == below:
                return False
        return bool(self._made)

    def _catch_up(self) -> None:
        """Read what other processes have written to the journal."""
        begin = self._read
        if os.stat(self._folder.journal).st_size == begin:
            return
        with open(self._folder.journal, "rb") as file:
            file.seek(begin)
            data = file.read()
        whole = data.rfind(END) + len(END)
        if whole >= len(END):
            self._read = begin + whole
            for record in decoded(data[:whole]):
                self._note(record)

    def _note(self, record: UndoRecord) -> None:
        gives = _GIVES.get(record.kind, WHOLE)
        if record.kind == PathState.ABSENT and record.path not in self._known:
            self._made.add(record.path)
        if record.kind == PathState.LINKED:
            self._kept[record.path] = record.ino
        self._known[record.path] = max(gives, self._known.get(record.path, -1))

    def _state(self, path: str, kind: str) -> UndoRecord:
        if self._is_made(path):
            return UndoRecord(PathState.ABSENT, path)
        try:
            stat = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return UndoRecord(PathState.ABSENT, path)
        if modes.S_ISREG(stat.st_mode):
            return self._saved(path, kind, stat)
        if modes.S_ISDIR(stat.st_mode):
            return UndoRecord(PathState.FOLDER, path, stat)
        if modes.S_ISLNK(stat.st_mode):
            return UndoRecord(PathState.SYMLINK, path, stat, detail=os.readlink(path))
        return UndoRecord(PathState.OTHER, path, stat)

    def _saved(self, path: str, kind: str, stat: os.stat_result) -> UndoRecord:
        """Save a file at the least cost that is safe for what is about to happen to it.

        One that loses its name gets another one, unless it was written to already, if only at its end. One that is
        renamed is copied if possible: a link shows its content only until somebody writes to it by the new name. Of one
        that is appended to, the size says enough, unless it is truncated and rewritten, which no event announces: it is
        copied where that is cheap, and for others the checksum will tell.
        """
        if kind == PathState.TOUCHED:
            return UndoRecord(kind, path, stat)
        may_link = self._known.get(path, TOUCH) == TOUCH
        kept = save_by_name(self._folder, path, stat) if may_link and kind == PathState.LINKED else ""
        if kept:
            return UndoRecord(PathState.LINKED, path, stat, kept=kept)
        why = ""
        if kind != PathState.APPENDED or stat.st_size <= CHEAP_BYTES:
            try:
                return UndoRecord(PathState.COPIED, path, stat, kept=save_by_copy(self._folder, path, stat))
            except CannotStoreError as error:
                why = str(error)
        if kind == PathState.APPENDED:
            return UndoRecord(kind, path, stat, detail=end_sum(path, stat.st_size))
        kept = save_by_name(self._folder, path, stat) if may_link and kind == PathState.MOVED else ""
        if kept:
            return UndoRecord(PathState.LINKED, path, stat, kept=kept)
        return UndoRecord(PathState.LOST, path, stat, detail=why)

    def _twin(self, path: str) -> str | None:
        """Make an empty file next to the path's, of its mode and owner; None if that is impossible or needless."""
        try:
            stat = os.lstat(path)
            if not modes.S_ISREG(stat.st_mode) or not os.access(path, os.W_OK):
                return None
            new = os.path.join(os.path.dirname(path), f".headrace-new-{os.getpid()}-{_thread.get_ident()}")
            self._before(new, PathState.LINKED)
            descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError:
            return None
        try:
            if (stat.st_uid, stat.st_gid) != (os.geteuid(), os.getegid()):
                os.fchown(descriptor, stat.st_uid, stat.st_gid)
            os.fchmod(descriptor, modes.S_IMODE(stat.st_mode))
        except OSError:
            os.unlink(new)
            return None
        finally:
            os.close(descriptor)
        return new

    def _entries(self, path: str) -> list[str]:
        """List the path, and what is below it unless the command created it, up to one beyond `MOST_ENTRIES`."""
        entries = [path]
        if not os.path.isdir(path) or os.path.islink(path) or self._is_made(path):
            return entries
        for folder, folders, files in os.walk(path):
            entries += [os.path.join(folder, name) for name in folders + files]
            if len(entries) > MOST_ENTRIES:
                break
        return entries

    def _write(self, record: UndoRecord) -> None:
        """Append a record. Raises OSError if it is not written as a whole.

        Opens the journal each time: a script that closes all descriptors may then use the number of ours for its own.
        """
        descriptor = os.open(self._folder.journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            data = record.encoded()
            if os.write(descriptor, data) != len(data):
                raise OSError(f"no space is left for {self._folder.journal}")
        finally:
            os.close(descriptor)
