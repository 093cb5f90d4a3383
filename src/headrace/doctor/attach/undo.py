"""Undo a run: restore every path of its journal to what it was. If this is cut short, run it again: it continues."""

from __future__ import annotations

import filecmp
import os
import shutil
import stat as modes
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from headrace.doctor.probe.hands_off.undo_folder import PathState, UndoRecord, decoded, end_sum, is_below

OUTSIDE = "outside"
"""Folder for files that the command created outside of the working directory."""
NO_FILES = (PathState.FOLDER, PathState.MOVED, PathState.OTHER)
OWN = (".headrace-new-", ".headrace-undo-")
"""Prefixes of the journal's own files."""


@dataclass
class FormerPath:
    """What a path was before the command: the journal's first record of it."""

    first: UndoRecord
    contents: list[UndoRecord] = field(default_factory=list)
    """Records that its content was saved with, oldest first: the first that still has it counts."""
    lost: str = ""
    """Why its content was not saved; empty if it was."""

    @property
    def path(self) -> str:
        return self.first.path

    @property
    def was_absent(self) -> bool:
        return self.first.kind == PathState.ABSENT

    def is_as_it_was(self) -> bool:
        """Return whether mode and inode are the same, and of a file, its size and time."""
        first, now = self.first, _stat_or_none(self.path)
        if now is None:
            return self.was_absent
        same = (now.st_mode, now.st_ino) == (first.mode, first.inode)
        is_file = modes.S_ISREG(now.st_mode)
        return same and (not is_file or (now.st_size, now.st_mtime_ns) == (first.size, first.mtime_ns))


@dataclass
class FormerPaths:
    """All paths of a journal, and the faults of writing it that concern none of them."""

    paths: dict[str, FormerPath] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def kept(self) -> set[str]:
        """Names of the files that hold former contents."""
        return {os.path.basename(record.kept) for before in self.paths.values() for record in before.contents}


def read_journal(path: Path) -> FormerPaths:
    """Read a journal. Raises OSError if it cannot be read."""
    journal = FormerPaths()
    for record in decoded(path.read_bytes()):
        if not record.path:
            journal.faults.append(record.detail)
            continue
        before = journal.paths.setdefault(record.path, FormerPath(record))
        if record.kind in (PathState.LINKED, PathState.COPIED):
            before.contents.append(record)
        elif record.kind == PathState.LOST:
            before.lost = before.lost or record.detail
    return journal


@dataclass
class Undone:
    """What was done, by path."""

    restored: list[str] = field(default_factory=list)
    """Paths that the command had changed or removed."""
    taken: list[str] = field(default_factory=list)
    """Files that the command had created."""
    strangers: list[str] = field(default_factory=list)
    """Files in folders that it had created, unknown to its journal: they are never deleted."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Paths that are not restored, and why."""


class Undo:
    """Restoration of one run's paths."""

    def __init__(self, root: Path, journal: FormerPaths, written: Path, *, keep: bool) -> None:
        """Move what the command created to `written`, or with `keep` False delete it, except for strangers."""
        self._root = root
        self._paths = journal.paths
        self._written = written
        self._keep = keep
        self.undone = Undone()

    def run(self) -> Undone:
        """Remove what is new, so that what was there has its place again; then restore that, and times last."""
        self._each(self._of_kind(PathState.FOLDER), _open_up)
        self._each(self._in_order(lambda before: before.was_absent), self._take_away)
        self._each(self._of_kind(PathState.FOLDER), self._make_folder)
        files = self._in_order(lambda before: not before.was_absent and before.first.kind not in NO_FILES)
        self._each(files, self._restore)
        self._finish_folders()
        return self.undone

    def _finish_folders(self) -> None:
        """Move whole folders back, and set modes and times, before the move for what is in these folders."""
        moved = [before for before in self._paths.values() if before.first.kind == PathState.MOVED]
        elsewhere = [before.first.kept for before in moved]
        folders = self._of_kind(PathState.FOLDER, PathState.MOVED)[::-1]
        there = [before for before in folders if any(is_below(before.path, folder) for folder in elsewhere)]
        self._each(there, _set_mode_and_times)
        self._each(moved[::-1], self._move_back)
        self._each([before for before in folders if before not in there], _set_mode_and_times)

    def _of_kind(self, *kinds: str) -> list[FormerPath]:
        return self._in_order(lambda before: before.first.kind in kinds)

    def _in_order(self, wanted: Callable[[FormerPath], bool]) -> list[FormerPath]:
        """Return paths in an order that has folders before what is in them."""
        return sorted(filter(wanted, self._paths.values()), key=lambda before: before.path)

    def _each(self, paths: list[FormerPath], work: Callable[[FormerPath], None]) -> None:
        for before in paths:
            self._try(before, work)

    def _try(self, before: FormerPath, work: Callable[[FormerPath], None]) -> None:
        try:
            work(before)
        except OSError as error:
            self.undone.failed.append((before.path, error.strerror or str(error)))

    def _take_away(self, before: FormerPath) -> None:
        if os.path.lexists(before.path):
            self._clear(before.path)

    def _clear(self, path: str) -> None:
        """Remove what the command has put at a path."""
        files = list(_files(path))
        strangers = [name for name in files if name not in self._paths]
        taken = [name for name in files if not os.path.basename(name).startswith(OWN)]
        if taken and (self._keep or strangers):
            self._move_away(path)
        else:
            _delete(path)
        self.undone.taken += taken
        self.undone.strangers += strangers

    def _move_away(self, path: str) -> None:
        inside = os.path.relpath(path, self._root)
        target = self._written / (inside if not inside.startswith("..") else OUTSIDE + path)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(path, target)

    def _make_folder(self, before: FormerPath) -> None:
        path = before.path
        if _is_folder(path):
            return
        if os.path.lexists(path):
            self._clear(path)
        os.mkdir(path)
        self.undone.restored.append(path)

    def _move_back(self, before: FormerPath) -> None:
        """Rename a folder back. What was new in a folder that took its place has been removed by now."""
        path, now = before.path, before.first.kept
        there = _stat_or_none(path)
        if (there is not None and there.st_ino == before.first.inode) or not os.path.isdir(now):
            return
        if os.path.isdir(path):
            os.rmdir(path)
        os.rename(now, path)
        self.undone.restored.append(path)

    def _restore(self, before: FormerPath) -> None:
        if before.first.kind == PathState.SYMLINK:
            self._relink(before)
        elif before.contents:
            self._refill(before)
        elif not before.is_as_it_was():
            self._mend(before)

    def _relink(self, before: FormerPath) -> None:
        path, target = before.path, before.first.detail
        if os.path.islink(path) and os.readlink(path) == target:
            return
        if os.path.lexists(path):
            self._clear(path)
        os.symlink(target, path)
        _set_owner(before.first, os.lstat(path))
        _set_times(before.first)
        self.undone.restored.append(path)

    def _refill(self, before: FormerPath) -> None:
        """Give the file its saved content."""
        for record in before.contents:
            with suppress(_NotSavedError):
                is_changed = self._put_back(record, before)
                if is_changed or not before.is_as_it_was():
                    _set_mode_and_times(before)
                    self.undone.restored.append(before.path)
                return
        if not before.is_as_it_was():
            self.undone.failed.append((before.path, "its saved content has changed as well"))

    def _put_back(self, record: UndoRecord, before: FormerPath) -> bool:
        """Restore what a record saved. Returns whether the file is another one than it was, or has other content."""
        if record.kind == PathState.LINKED:
            return self._give_name_back(record)
        return self._copy_back(record, before.first.size if before.first.kind == PathState.APPENDED else record.size)

    def _give_name_back(self, record: UndoRecord) -> bool:
        kept = _stat_or_none(record.kept)
        if kept is None or (kept.st_size, kept.st_mtime_ns) != (record.size, record.mtime_ns):
            raise _NotSavedError
        if os.path.lexists(record.path) and os.path.samestat(kept, os.lstat(record.path)):
            os.unlink(record.kept)
            return False
        if _is_folder(record.path):
            self._clear(record.path)
        try:
            os.replace(record.kept, record.path)
        except OSError:
            shutil.move(record.kept, record.path)
        return True

    def _copy_back(self, record: UndoRecord, size: int) -> bool:
        if not os.path.isfile(record.kept):
            raise _NotSavedError
        os.truncate(record.kept, min(size, os.path.getsize(record.kept)))
        path = record.path
        if os.path.isfile(path) and not os.path.islink(path):
            if filecmp.cmp(record.kept, path, shallow=False):
                return False
        elif os.path.lexists(path):
            self._clear(path)
        shutil.copyfile(record.kept, path)
        return True

    def _mend(self, before: FormerPath) -> None:
        """Restore a file that was not copied: cut off what was appended, and set mode and times."""
        first = before.first
        now = _stat_or_none(before.path)
        if now is None or now.st_ino != first.inode:
            raise OSError(0, before.lost or "another program has replaced or removed it")
        if first.kind == PathState.APPENDED and now.st_size > first.size:
            if first.detail and end_sum(before.path, first.size) != first.detail:
                raise OSError(0, "it was opened to append, and was truncated and rewritten")
            os.truncate(before.path, first.size)
        elif before.lost or now.st_size != first.size:
            raise OSError(0, before.lost or "another program has written to it")
        _set_mode_and_times(before)
        self.undone.restored.append(before.path)


class _NotSavedError(Exception):
    """Content that a record saved and that is gone."""


def _files(path: str) -> Iterator[str]:
    """Yield everything that is not a folder, at the path or below it."""
    if not _is_folder(path):
        yield path
        return
    for folder, folders, files in os.walk(path):
        links = (name for name in folders if os.path.islink(os.path.join(folder, name)))
        yield from (os.path.join(folder, name) for name in (*files, *links))


def _delete(path: str) -> None:
    if _is_folder(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def _set_mode_and_times(before: FormerPath) -> None:
    first = before.first
    now = os.lstat(first.path)
    _set_owner(first, now)
    if modes.S_IMODE(now.st_mode) != modes.S_IMODE(first.mode):
        os.chmod(first.path, modes.S_IMODE(first.mode))
    if now.st_mtime_ns != first.mtime_ns:
        _set_times(first)


def _set_owner(first: UndoRecord, now: os.stat_result) -> None:
    if (now.st_uid, now.st_gid) != (first.owner, first.group):
        os.chown(first.path, first.owner, first.group, follow_symlinks=False)


def _set_times(first: UndoRecord) -> None:
    os.utime(first.path, ns=(first.atime_ns, first.mtime_ns), follow_symlinks=False)


def _open_up(before: FormerPath) -> None:
    """Let this user into a folder of theirs, whatever mode the command has given it."""
    if _is_folder(before.path) and not before.is_as_it_was():
        os.chmod(before.path, modes.S_IMODE(before.first.mode) | modes.S_IRWXU)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _stat_or_none(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError:
        return None
