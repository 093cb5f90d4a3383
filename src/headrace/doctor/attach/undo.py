"""Undo a run: restore every path of its journal to its former state. An interrupted undo continues when run again."""

from __future__ import annotations

import filecmp
import os
import shutil
import stat as modes
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.doctor.probe.undo_folder import ELSEWHERE, UNFINISHED, Record, UndoFolder, end_sum, lstat

WRITTEN = "written"
"""Folder of the session that receives the files that the command created."""
OUTSIDE = "outside"
"""Its subfolder for files outside the working directory."""


@dataclass
class UndoReport:
    """Result for the files that the command had changed."""

    root: Path
    """The folder that is restored."""
    restored: list[str] = field(default_factory=list)
    """Paths that the command had changed or removed."""
    taken: list[str] = field(default_factory=list)
    """Files that the command had created."""
    failed: list[tuple[str, str]] = field(default_factory=list)
    """Paths that are not restored, and why."""
    written: Path | None = None
    """Folder of the files that the command created; None if they were deleted, or there were none."""
    changed: list[tuple[str, str]] = field(default_factory=list)
    """Paths that differ nevertheless, and how: `created`, `removed` or `changed`."""
    is_listed: bool = True
    """True if these paths were searched for; False if the folder has too many entries."""


def undo_run(folder: UndoFolder, *, keep: bool) -> UndoReport:
    """Undo a run by its journal, and delete the journal unless something failed.

    Files created by the command go to the session's folder with `keep`. Never raises OSError: the report has the
    failures.
    """
    root, written = Path(folder.owned()[2]), Path(folder.session) / WRITTEN
    try:
        undo = _Undo(root, folder.records()[0], written, keep=keep)
        report = undo.run()
        if any(undo.is_unnamed(os.path.join(folder.kept, name)) for name in os.listdir(folder.kept)):
            report.failed.append(("", f"{folder.kept} holds former contents of files that no record names"))
        os.unlink(folder.owner)  # done, as far as possible
        if not report.failed:
            shutil.rmtree(folder.path)
    except OSError as error:
        report = UndoReport(root, failed=[("", f"{folder.path}: {error.strerror}")])
    return replace(report, written=written if written.exists() else None)


class _Undo:
    def __init__(self, root: Path, records: list[Record], written: Path, *, keep: bool) -> None:
        self._records: dict[str, list[Record]] = {}
        for record in records:
            self._records.setdefault(record.path, []).append(record)
        faults = [("", record.detail) for record in self._records.pop("", [])]
        self._saved = {record.kept for record in records if record.kept}
        links = [record for record in records if record.kind == "linked"]
        intact = [os.lstat(one.kept) for one in links if _is_intact(self._records[one.path][0], one)]
        self._renamed = {(now.st_dev, now.st_ino) for now in intact}
        self._written = written
        self._keep = keep
        self._report = UndoReport(root, failed=faults)

    def run(self) -> UndoReport:
        """Restore folders before their contents, and their times last."""
        ours = [path for path in self._records if os.path.basename(path).startswith(ELSEWHERE)]
        for path in sorted(self._records.keys() - ours):
            self._try(path, self._restore)
        for path in ours if not self._report.failed else ():
            shutil.rmtree(path, ignore_errors=True)
        for path in sorted(self._records, reverse=True):
            if self._records[path][0].kind == "folder":
                self._try(path, self._set_mode_and_times)
        return self._report

    def is_unnamed(self, path: str) -> bool:
        """Return True if a file has former content that exists nowhere else and is named by no record."""
        is_whole = not os.path.basename(path).startswith(UNFINISHED)
        return is_whole and path not in self._saved and os.lstat(path).st_nlink == 1

    def _try(self, path: str, work: Callable[[str], None]) -> None:
        try:
            work(path)
        except OSError as error:
            self._report.failed.append((path, error.strerror or str(error)))

    def _restore(self, path: str) -> None:
        first = self._records[path][0]
        if first.kind == "absent":
            self._clear(path)
        elif first.kind == "folder":
            if not _is_folder(path):
                self._clear(path)
                os.mkdir(path)
                self._report.restored.append(path)
            if modes.S_IMODE(os.lstat(path).st_mode) != modes.S_IMODE(first.mode):  # allow access for us
                os.chmod(path, modes.S_IMODE(first.mode) | modes.S_IRWXU)
        elif first.kind == "symlink":
            if not os.path.islink(path) or os.readlink(path) != first.detail:
                self._clear(path)
                os.symlink(first.detail, path)
                self._report.restored.append(path)
            self._set_mode_and_times(path)
        elif self._refill(path) or not _is_as_it_was(first):
            self._cut(path)
            self._set_mode_and_times(path)
            self._report.restored.append(path)

    def _clear(self, path: str) -> None:
        """Remove what the command created at a path, but keep files that are not in its journal."""
        if not os.path.lexists(path):
            return
        for name in list(_files(path)):
            now = os.lstat(name)
            if (now.st_dev, now.st_ino) in self._renamed:  # its former name has it, or gets it
                os.unlink(name)
        taken = list(_files(path))
        if taken and (self._keep or not self._records.keys() >= set(taken)):
            inside = os.path.relpath(path, self._report.root)
            target = self._written / (inside if not inside.startswith("..") else OUTSIDE + path)
            target.parent.mkdir(parents=True, exist_ok=True)
            while os.path.lexists(target):  # of a run before this one
                target = target.with_name(f"{target.name}~")
            shutil.move(path, target)
        elif _is_folder(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.unlink(path)
        self._report.taken += taken

    def _refill(self, path: str) -> bool:
        """Restore a file's saved content from the first record that has it; return True if the content differed."""
        first, now = self._records[path][0], lstat(path)
        for record in self._records[path]:
            is_file = now is not None and modes.S_ISREG(now.st_mode)
            if record.kind == "linked" and _is_intact(first, record):
                if now and os.path.samestat(now, os.lstat(record.kept)):
                    return False
                if _is_folder(path):
                    self._clear(path)
                os.replace(record.kept, path)
                return True
            if record.kind == "copied" and os.path.isfile(record.kept):
                if is_file and filecmp.cmp(record.kept, path, shallow=False):
                    return False
                if not is_file:
                    self._clear(path)
                shutil.copyfile(record.kept, path)
                return True
        if _is_as_it_was(first) or (first.kind == "touched" and now and now.st_ino == first.ino):
            return False
        lost = next((record.detail for record in self._records[path] if record.kind == "lost"), "")
        why = "its saved content has changed as well" if first.kind != "touched" else "another program has replaced it"
        raise OSError(0, lost or why)

    def _cut(self, path: str) -> None:
        """Truncate what was appended to a file."""
        first = self._records[path][0]
        if first.kind == "touched":
            size = os.path.getsize(path)
            if size < first.size or end_sum(path, first.size) != first.detail:
                raise OSError(0, "it was opened to append, and was truncated and rewritten")
            if size > first.size:
                os.truncate(path, first.size)

    def _set_mode_and_times(self, path: str) -> None:
        first, now = self._records[path][0], os.lstat(path)
        if (now.st_uid, now.st_gid) != (first.uid, first.gid):
            os.chown(path, first.uid, first.gid, follow_symlinks=False)
        if modes.S_IMODE(now.st_mode) != modes.S_IMODE(first.mode):  # not for symbolic links: all have the same mode
            os.chmod(path, modes.S_IMODE(first.mode))
        if now.st_mtime_ns != first.mtime_ns:
            os.utime(path, ns=(first.atime_ns, first.mtime_ns), follow_symlinks=False)


def _is_as_it_was(first: Record) -> bool:
    """Return True if a path's mode and inode are unchanged, and a file's size and time."""
    now = lstat(first.path)
    if now is None or (now.st_mode, now.st_ino) != (first.mode, first.ino):
        return False
    return not modes.S_ISREG(now.st_mode) or (now.st_size, now.st_mtime_ns) == (first.size, first.mtime_ns)


def _is_intact(first: Record, linked: Record) -> bool:
    """Return True if a linked file still has its content, at least at its beginning."""
    now = lstat(linked.kept)
    is_same = now is not None and (now.st_size, now.st_mtime_ns) == (linked.size, linked.mtime_ns)
    return is_same or (now is not None and first.kind == "touched" and end_sum(linked.kept, first.size) == first.detail)


def _files(path: str) -> Iterator[str]:
    """Yield everything that is not a folder, at the path or below it."""
    if not _is_folder(path):
        if os.path.lexists(path):
            yield path
        return
    for folder, folders, files in os.walk(path):
        links = (name for name in folders if os.path.islink(os.path.join(folder, name)))
        yield from (os.path.join(folder, name) for name in (*files, *links))


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
