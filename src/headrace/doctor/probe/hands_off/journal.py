"""What this process is about to change, written down before it does."""

from __future__ import annotations

import _thread
import os
import stat as modes
from collections.abc import Iterator

from .undo_folder import (
    ABSENT,
    APPENDED,
    CHEAP_BYTES,
    COPIED,
    END,
    FOLDER,
    LINKED,
    LOST,
    MOVED,
    OTHER,
    SYMLINK,
    TOUCHED,
    CannotStoreError,
    ContentStore,
    UndoFolder,
    UndoRecord,
    decoded,
    end_sum,
    is_below,
    no_work,
    temporary,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable

TOUCH, APPEND, WHOLE = range(3)
"""How much of a file's former state a record gives: its mode and times, also its size, also its content."""
_GIVES = {TOUCHED: TOUCH, APPENDED: APPEND}
MOST_ENTRIES = 10_000
"""Of a folder that is renamed, beyond which it is moved back as a whole."""


class UndoJournal:
    """Appends to the one journal of the session, each record by one write, so that a process that is killed leaves it
    whole, and records stand in it before what they announce is done, whichever process does it.

    A path's first record is of its state before the command: it was taken before the record was written, and nobody
    changes a path before a record of it is there. So no lock is needed, and a second one is only a waste. A file that
    is kept by another name is not written to until its path has another file, or it was copied.
    """

    def __init__(self, folder: UndoFolder, root: str) -> None:
        self._folder = folder
        self._root = root
        self._folders: set[str] = set()
        self._besides = [folder.session, *no_work(root)]
        self._keeper = ContentStore(folder)
        self._known: dict[str, int] = {}
        self._made: set[str] = set()
        self._kept: dict[str, int] = {}
        """Inodes of the files that were given another name, by path."""
        self._read = 0
        self._thread = _thread._local()

    def guarded(self, work: Callable[..., None], *arguments: Any) -> None:
        """Does it unless this thread is within another: what that does itself needs no record. Never raises, since an
        audit hook that does forbids what is audited."""
        if getattr(self._thread, "is_busy", False):
            return
        self._thread.is_busy = True
        try:
            work(*arguments)
        except Exception as error:
            self._tell_fault(error)
        finally:
            self._thread.is_busy = False

    def _tell_fault(self, error: Exception) -> None:
        """Where not even that can be written, the listing of the folder still shows what has changed."""
        try:
            self._write(UndoRecord(LOST, "", detail=f"{type(error).__name__}: {error}"))
        except OSError:
            return

    def saves(self, path: str | bytes | os.PathLike[Any]) -> None:
        """A checkpoint is written, which is the user's work wherever that is. From then on this process's changes of
        its folder's own entries are written down, too: it may be renamed there."""
        text = os.fsdecode(path)
        folder = os.path.dirname(os.path.realpath(text))
        if folder != temporary():
            self._folders.add(folder)
        place = self.place(text, follow=True)
        if place is not None:
            self.empties(place)

    def place(self, path: str | bytes, *, follow: bool) -> str | None:
        """Its real path, with `follow` also of what it is a link to; None where changes there are not undone."""
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
        """Its mode or times change."""
        self._copy_what_is_kept(path)
        self._before(path, TOUCH, self._touched)

    def appends(self, path: str) -> None:
        self._copy_what_is_kept(path)
        self._before(path, APPEND, self._appended)

    def writes(self, path: str) -> None:
        """It is written in place, or may be."""
        self._copy_what_is_kept(path)
        self._before(path, WHOLE, self._copied)

    def empties(self, path: str) -> None:
        """It is written from its beginning. What it was keeps the file, and its name gets a new one."""
        if self._knows(path, WHOLE) and not self._is_what_is_kept(path):
            return
        new = self._twin(path)
        if new is None:
            self.writes(path)
            return
        try:
            if self._before(path, WHOLE, self._linked) == LINKED or self._is_what_is_kept(path):
                self._put(new, path)
        finally:
            if os.path.lexists(new):
                os.unlink(new)

    def removes(self, path: str) -> None:
        """It loses its name, or another file takes it."""
        self._before(path, WHOLE, self._linked)

    def makes(self, path: str) -> None:
        """It comes to be, unless it is there."""
        if not os.path.lexists(path):
            self._before(path, WHOLE, self._touched)

    def moves(self, path: str, to: str, *, is_covered: bool) -> None:
        """It gets another name, where it may be written in place, and what had that is lost. `is_covered`: whether
        changes are undone there."""
        entries = self._entries(path)
        if len(entries) > MOST_ENTRIES:
            self._before(path, WHOLE, self._moved, moved_to=to)
            return
        for entry in entries:
            self._before(entry, WHOLE, self._moved)
        if is_covered:
            self.removes(to)
            known = list(self._known) if os.path.isdir(path) else []
            for entry in [name for name in known if name.startswith(path + "/")]:
                self.removes(to + entry[len(path) :])

    def _before(
        self, path: str, wanted: int, file: Callable[[str, os.stat_result], UndoRecord], *, moved_to: str = ""
    ) -> str:
        """Writes down what the path is, `file` saying it where that is a file. Its kind, if a record was due.
        `moved_to`: of a folder that is moved as a whole."""
        parent = os.path.dirname(path)
        is_known = self._knows(path, wanted)
        knows_parent = path == self._root or self._knows(parent, TOUCH)
        if is_known and knows_parent:
            return ""
        self._catch_up()
        if not knows_parent and not self._knows(parent, TOUCH):  # its time changes with its entries
            self._tell(self._state(parent, self._touched))
        if is_known or self._knows(path, wanted):
            return ""
        record = self._state(path, file)
        if moved_to and record.kind == FOLDER:
            record = UndoRecord(MOVED, path, os.lstat(path), kept=moved_to)
        self._tell(record)
        return record.kind

    def _is_what_is_kept(self, path: str) -> bool:
        """Whether the very file is there that another name keeps: what was to remove or to replace it has failed, as a
        move from another file system does, or another process is about to do so."""
        if path not in self._kept:
            return False
        try:
            return os.lstat(path).st_ino == self._kept[path]
        except OSError:
            return False

    def _copy_what_is_kept(self, path: str) -> None:
        """Before that is written in place, by whichever name."""
        if self._is_what_is_kept(path):
            self._tell(self._copied(path, os.lstat(path)))
            self._kept.pop(path, None)

    def _tell(self, record: UndoRecord) -> None:
        self._write(record)
        self._note(record)

    def _knows(self, path: str, wanted: int) -> bool:
        return self._known.get(path, -1) >= wanted

    def _is_made(self, path: str) -> bool:
        """Whether the command has made it, or a folder around it: whoever has put it there, it was not there before."""
        return bool(self._made) and (path in self._made or any(parent in self._made for parent in _parents(path)))

    def _catch_up(self) -> None:
        """With what other processes have written down."""
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
        if record.kind == ABSENT and record.path not in self._known:
            self._made.add(record.path)
        if record.kind == LINKED:
            self._kept[record.path] = record.inode
        self._known[record.path] = max(gives, self._known.get(record.path, -1))

    def _state(self, path: str, file: Callable[[str, os.stat_result], UndoRecord]) -> UndoRecord:
        if self._is_made(path):
            return UndoRecord(ABSENT, path)
        try:
            stat = os.lstat(path)
        except (FileNotFoundError, NotADirectoryError):
            return UndoRecord(ABSENT, path)
        if modes.S_ISREG(stat.st_mode):
            return file(path, stat)
        if modes.S_ISDIR(stat.st_mode):
            return UndoRecord(FOLDER, path, stat)
        if modes.S_ISLNK(stat.st_mode):
            return UndoRecord(SYMLINK, path, stat, detail=os.readlink(path))
        return UndoRecord(OTHER, path, stat)

    def _touched(self, path: str, stat: os.stat_result) -> UndoRecord:
        return UndoRecord(TOUCHED, path, stat)

    def _appended(self, path: str, stat: os.stat_result) -> UndoRecord:
        """Its size says enough unless it is cut and written anew, of which no event tells: what is cheap to copy is
        copied, and of the rest the end's sum will tell."""
        if stat.st_size <= CHEAP_BYTES:
            record = self._copied(path, stat)
            if record.kind == COPIED:
                return record
        return UndoRecord(APPENDED, path, stat, detail=end_sum(path, stat.st_size))

    def _copied(self, path: str, stat: os.stat_result) -> UndoRecord:
        try:
            return UndoRecord(COPIED, path, stat, kept=self._keeper.copied(path, stat))
        except CannotStoreError as why:
            return UndoRecord(LOST, path, stat, detail=str(why))

    def _linked(self, path: str, stat: os.stat_result) -> UndoRecord:
        """A path that was written to before, be it only at its end, is no longer what it was: it is copied."""
        if path in self._known and self._known[path] != TOUCH:
            return self._copied(path, stat)
        try:
            return UndoRecord(LINKED, path, stat, kept=self._keeper.linked(path, stat))
        except CannotStoreError:
            return self._copied(path, stat)

    def _moved(self, path: str, stat: os.stat_result) -> UndoRecord:
        """A link shows only until somebody writes to the file by its new name, which its time will tell."""
        record = self._copied(path, stat)
        return record if record.kind == COPIED else self._linked(path, stat)

    def _twin(self, path: str) -> str | None:
        """An empty file beside the path's, of its mode and owner; None where there can be none, or need be none."""
        try:
            stat = os.lstat(path)
            if not modes.S_ISREG(stat.st_mode) or not os.access(path, os.W_OK):
                return None
            new = os.path.join(os.path.dirname(path), f".headrace-new-{os.getpid()}-{_thread.get_ident()}")
            self._before(new, WHOLE, self._linked)
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

    def _put(self, new: str, path: str) -> None:
        """In place of a file that is kept under another name: in one step, so that the path is never missing. Where
        that fails, the file will be written in place, and what is kept would be written with it."""
        try:
            os.replace(new, path)
        except OSError:
            self._write(self._copied(path, os.lstat(path)))

    def _entries(self, path: str) -> list[str]:
        """The path, and all that is below it where that is a folder which is not the command's own: no more than one
        beyond `MOST_ENTRIES`."""
        entries = [path]
        if not os.path.isdir(path) or os.path.islink(path) or self._is_made(path):
            return entries
        for folder, folders, files in os.walk(path):
            entries += [os.path.join(folder, name) for name in folders + files]
            if len(entries) > MOST_ENTRIES:
                break
        return entries

    def _write(self, record: UndoRecord) -> None:
        """Opens it each time: a script that closes all descriptors may then use the number of ours for a file of its
        own. Raises OSError where the record is not there as a whole."""
        descriptor = os.open(self._folder.journal, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            data = record.encoded()
            if os.write(descriptor, data) != len(data):
                raise OSError(f"no space is left for {self._folder.journal}")
        finally:
            os.close(descriptor)


def _parents(path: str) -> Iterator[str]:
    parent = os.path.dirname(path)
    while parent != path:
        yield parent
        path, parent = parent, os.path.dirname(parent)
