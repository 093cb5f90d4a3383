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
FILES = (
    *(PathState.LINKED, PathState.COPIED, PathState.APPENDED, PathState.TOUCHED),
    *(PathState.LOST, PathState.SYMLINK),
)
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

    def is_as_it_was(self) -> bool:
        """Return whether mode and inode are the same, and of a file, its size and time."""
        first, now = self.first, _stat_or_none(self.path)
        if now is None:
            return first.kind == PathState.ABSENT
        same = (now.st_mode, now.st_ino) == (first.mode, first.ino)
        is_file = modes.S_ISREG(now.st_mode)
        return same and (not is_file or (now.st_size, now.st_mtime_ns) == (first.size, first.mtime_ns))


def read_journal(path: Path) -> tuple[dict[str, FormerPath], list[str]]:
    """Return all paths of a journal, and the faults of writing it that concern none of them.

    Raises OSError if it cannot be read.
    """
    paths: dict[str, FormerPath] = {}
    faults = []
    for record in decoded(path.read_bytes()):
        if not record.path:
            faults.append(record.detail)
            continue
        before = paths.setdefault(record.path, FormerPath(record))
        if record.kind in (PathState.LINKED, PathState.COPIED):
            before.contents.append(record)
        elif record.kind == PathState.LOST:
            before.lost = before.lost or record.detail
    return paths, faults


@dataclass
class UndoReport:
    """What became of the files that the command had changed."""

    root: Path
    """The folder that is restored."""
    restored: list[str] = field(default_factory=list)
    """Paths that the command had changed or removed."""
    taken: list[str] = field(default_factory=list)
    """Files that the command had created."""
    strangers: list[str] = field(default_factory=list)
    """Files in folders that it had created, unknown to its journal: they are never deleted."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Paths that are not restored, and why."""
    written: Path | None = None
    """Where the files are that the command created; None if they were deleted, or there were none."""
    changed: list[tuple[str, str]] = field(default_factory=list)
    """Paths that differ nevertheless, and how: `created`, `removed` or `changed`."""
    is_listed: bool = True
    """Whether such paths were looked for: not in a folder of too many entries."""


class Undo:
    """Restoration of one run's paths."""

    def __init__(self, root: Path, paths: dict[str, FormerPath], written: Path, *, keep: bool) -> None:
        """Move what the command created to `written`, or with `keep` False delete it, except for strangers."""
        self._paths = paths
        self._written = written
        self._keep = keep
        self.report = UndoReport(root)

    def run(self) -> UndoReport:
        """Remove what is new, so that what was there has its place again; then restore that, and times last."""
        self._each(self._of_kind(PathState.FOLDER), _open_up)
        self._each(self._of_kind(PathState.ABSENT), lambda before: self._clear(before.path))
        self._each(self._of_kind(PathState.FOLDER), self._make_folder)
        self._each(self._of_kind(*FILES), self._restore)
        # Modes and times of what is in a folder that has another name now are set before that is moved back.
        moved = self._of_kind(PathState.MOVED)
        folders = self._of_kind(PathState.FOLDER, PathState.MOVED)[::-1]
        there = [one for one in folders if any(is_below(one.path, folder.first.kept) for folder in moved)]
        self._each(there, _set_mode_and_times)
        self._each(moved[::-1], self._move_back)
        self._each([one for one in folders if one not in there], _set_mode_and_times)
        return self.report

    def _of_kind(self, *kinds: str) -> list[FormerPath]:
        """Return paths in an order that has folders before what is in them."""
        return sorted((one for one in self._paths.values() if one.first.kind in kinds), key=lambda one: one.path)

    def _each(self, paths: list[FormerPath], work: Callable[[FormerPath], None]) -> None:
        for before in paths:
            self._try(before, work)

    def _try(self, before: FormerPath, work: Callable[[FormerPath], None]) -> None:
        try:
            work(before)
        except OSError as error:
            self.report.failed.append((before.path, error.strerror or str(error)))

    def _clear(self, path: str) -> None:
        """Remove what the command has put at a path, if anything."""
        if not os.path.lexists(path):
            return
        files = list(_files(path))
        strangers = [name for name in files if name not in self._paths]
        taken = [name for name in files if not os.path.basename(name).startswith(OWN)]
        if taken and (self._keep or strangers):
            inside = os.path.relpath(path, self.report.root)
            target = self._written / (inside if not inside.startswith("..") else OUTSIDE + path)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, target)
        elif _is_folder(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
        self.report.taken += taken
        self.report.strangers += strangers

    def _make_folder(self, before: FormerPath) -> None:
        if not _is_folder(before.path):
            self._clear(before.path)
            os.mkdir(before.path)
            self.report.restored.append(before.path)

    def _move_back(self, before: FormerPath) -> None:
        """Rename a folder back. What was new in a folder that took its place has been removed by now."""
        path, now = before.path, before.first.kept
        there = _stat_or_none(path)
        if (there is not None and there.st_ino == before.first.ino) or not os.path.isdir(now):
            return
        if os.path.isdir(path):
            os.rmdir(path)
        os.rename(now, path)
        self.report.restored.append(path)

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
        self._clear(path)
        os.symlink(target, path)
        _set_mode_and_times(before)
        self.report.restored.append(path)

    def _refill(self, before: FormerPath) -> None:
        """Give the file its saved content, by the first record that still has it."""
        first = before.first
        for record in before.contents:
            with suppress(_NotSavedError):
                if record.kind == PathState.LINKED:
                    is_changed = self._give_name_back(record)
                else:
                    size = first.size if first.kind == PathState.APPENDED else record.size
                    is_changed = self._copy_back(record, size)
                if is_changed or not before.is_as_it_was():
                    _set_mode_and_times(before)
                    self.report.restored.append(before.path)
                return
        if not before.is_as_it_was():
            self.report.failed.append((before.path, "its saved content has changed as well"))

    def _give_name_back(self, record: UndoRecord) -> bool:
        """Return whether the file is another one than it was."""
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
        """Return whether the file has other content than it had."""
        if not os.path.isfile(record.kept):
            raise _NotSavedError
        os.truncate(record.kept, min(size, os.path.getsize(record.kept)))
        path = record.path
        if os.path.isfile(path) and not os.path.islink(path):
            if filecmp.cmp(record.kept, path, shallow=False):
                return False
        else:
            self._clear(path)
        shutil.copyfile(record.kept, path)
        return True

    def _mend(self, before: FormerPath) -> None:
        """Restore a file that was not copied: cut off what was appended, and set mode and times."""
        first = before.first
        now = _stat_or_none(before.path)
        if now is None or now.st_ino != first.ino:
            raise OSError(0, before.lost or "another program has replaced or removed it")
        if first.kind == PathState.APPENDED and now.st_size > first.size:
            if first.detail and end_sum(before.path, first.size) != first.detail:
                raise OSError(0, "it was opened to append, and was truncated and rewritten")
            os.truncate(before.path, first.size)
        elif before.lost or now.st_size != first.size:
            raise OSError(0, before.lost or "another program has written to it")
        _set_mode_and_times(before)
        self.report.restored.append(before.path)


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


def _set_mode_and_times(before: FormerPath) -> None:
    first = before.first
    now = os.lstat(first.path)
    if (now.st_uid, now.st_gid) != (first.uid, first.gid):
        os.chown(first.path, first.uid, first.gid, follow_symlinks=False)
    if modes.S_IMODE(now.st_mode) != modes.S_IMODE(first.mode):  # never of symbolic links: all of theirs are the same
        os.chmod(first.path, modes.S_IMODE(first.mode))
    if now.st_mtime_ns != first.mtime_ns:
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
