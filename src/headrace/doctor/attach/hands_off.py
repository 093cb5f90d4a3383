"""Restore the user's files after a command by the journal of its changes (docs/doctor/attach.md#hands-off)."""

from __future__ import annotations

import fcntl
import filecmp
import os
import shutil
import stat as modes
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from unittest.mock import patch

from headrace.doctor.probe import UNDO, ProbeSettings
from headrace.doctor.probe import hands_off as recorder
from headrace.doctor.probe.hands_off import COPY, JOURNAL, KEPT, Record, inode, is_below, lstat, no_work
from headrace.errors import UsageError

from .injection import FOLDER_VARIABLE, TRACKERS, offline_environment
from .process_tree import all_pids, process_environment

WRITTEN = "written"
"""Folder of the session that receives the files that the command created."""
MOST_LISTED = 200_000
"""Number of entries above which a folder is not listed: about a second on a local disk."""
MOST_NAMED = 5
"""Number of paths that a note names; further paths are only counted."""
Notes = list[tuple[str, str]]
"""Notes about the user's files: codes of docs/doctor/session.md, and texts."""
Listing = dict[str, tuple[int, int, int]]
"""Entries in a folder by path: mode, size and modification time in ns, the latter two 0 except for files."""


@contextmanager
def hands_off(settings: ProbeSettings, *, keep: bool = False) -> Iterator[Callable[[], Notes]]:
    """Leave the current folder as it was, whatever a command run in the context does.

    Files created by the command are moved to the session's folder with `keep`, or else deleted. Yields a function that
    restores the folder after all processes of the command have ended; if the settings name no scratch folder, nothing
    is recorded. Raises UsageError if another doctor measures in the folder, or the scratch
    folder is not writable.
    """
    if not settings.scratch:
        yield list
        return
    root, session = os.path.realpath(os.getcwd()), os.path.realpath(settings.folder)
    with exclusive_run(root):
        before = list_folder(root, session)
        begin_record(session, root)

        @cache
        def put_back() -> Notes:
            return undo_run(session, keep=keep) + listing_notes(root, before, list_folder(root, session))

        try:
            yield put_back
        finally:
            put_back()


@contextmanager
def hands_off_here(settings: ProbeSettings) -> Iterator[None]:
    """Leave the current folder as it was, whatever this process does in the context, with trackers offline.

    Prints what was restored, deleted, or could not be. Raises UsageError like `hands_off`.
    """
    with hands_off(settings) as put_back:
        environment = offline_environment(os.environ, Path(settings.scratch) / TRACKERS)
        recorder.start(settings.folder)
        try:
            with patch.dict(os.environ, environment, clear=True):
                yield
        finally:
            recorder.stop()
            for _, text in put_back():
                print(text)


def begin_record(session: str, root: str) -> None:
    """Create the journal of changes from now on. Raises UsageError if the session's folder is not writable."""
    owner = Path(session, UNDO)
    try:
        Path(session, KEPT).mkdir(parents=True)
        Path(session, JOURNAL).touch()
        owner.write_bytes(os.fsencode(root))
    except OSError as error:
        raise UsageError(
            f"expected a folder that takes what the command changes, got {owner.parent} ({error.strerror}); "
            "make room there, set TMPDIR, give --keep, or --observe"
        ) from error


def holds_files(session: Path) -> bool:
    """Return True if a session's folder holds user files that exist nowhere else."""
    return (session / WRITTEN).exists() or not is_undone(session)


def is_undone(session: Path) -> bool:
    """Return True if every file that the session's run changed is restored."""
    return not (session / UNDO).parent.exists()


@contextmanager
def exclusive_run(root: str) -> Iterator[None]:
    """Exclude other doctors from a folder, its subfolders and its parents: neither run could be undone alone.

    Locks the folders until the end of the context; without locks in the file system, nobody is excluded. Raises
    UsageError if another doctor measures there.
    """
    with ExitStack() as stack:
        for folder in (Path(root), *Path(root).parents):
            kind = fcntl.LOCK_EX if str(folder) == root else fcntl.LOCK_SH
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                except BlockingIOError as error:
                    raise UsageError(
                        f"expected a folder in which nothing else is measured, got {folder}, where a doctor runs that "
                        "will restore its files; wait for it, give --observe, or run in a copy of the folder"
                    ) from error
        yield


def restore_session(session: Path) -> Notes:
    """Undo the run of a session whose doctor was killed; files it created go to the session's folder.

    Raises UsageError if there is nothing to undo, or the doctor or the command still runs.
    """
    folder = os.path.realpath(session)
    try:
        root = recorder.owner(folder)
    except OSError as error:
        raise UsageError(
            f"expected the folder of a session whose doctor was killed, got {session}, in which nothing is left to undo"
        ) from error
    with exclusive_run(root):
        for pid in all_pids():
            if (process_environment(pid) or {}).get(FOLDER_VARIABLE) == folder:
                raise UsageError(
                    f"expected a session whose command has ended, got {session}, of which process {pid} still runs; "
                    "end it first"
                )
        return undo_run(folder, keep=True)


def unfinished_sessions(root: str) -> list[Path]:
    """List this user's temporary sessions, proofs included, with a run in `root` that was not undone.

    Only this user is trusted: a journal says which files to overwrite.
    """
    found = []
    for session in sorted(Path(tempfile.gettempdir()).glob("headrace-doctor-*")):
        with suppress(OSError):
            owners = {session.lstat().st_uid, (session / UNDO).lstat().st_uid}
            if owners == {os.geteuid()} and not session.is_symlink() and recorder.owner(str(session)) == root:
                found.append(session)
    return found


def undo_run(session: str, *, keep: bool) -> Notes:
    """Undo a run by its journal, and delete the journal unless something failed. An interrupted undo can run again.

    Files created by the command go to the session's folder with `keep`.
    """
    undo = _Undo(session, keep=keep)
    undo.run()
    os.unlink(os.path.join(session, UNDO))  # done, as far as possible
    if not undo.failed:
        shutil.rmtree(os.path.join(session, os.path.dirname(UNDO)))
    return undo.notes()


class _Undo:
    def __init__(self, session: str, *, keep: bool) -> None:
        records = recorder.read_records(session)[0]
        self._root, self._written, self._keep = recorder.owner(session), Path(session, WRITTEN), keep
        self._first = {record.path: record for record in reversed(records)}
        self._saved = {record.kept for record in records if modes.S_ISREG(record.mode) and record.kept}
        self._folders = {os.path.join(session, KEPT), *map(os.path.dirname, self._saved)}
        self._inodes = {inode(os.lstat(path)) for path in self._saved if os.path.lexists(path)}
        self._restored: set[str] = set()
        self._created: set[str] = set()
        self.failed: list[tuple[str, str]] = []

    def run(self) -> None:
        """Restore folders before their contents, and attributes last."""
        paths = [path for path in sorted(self._first.keys() - self._folders) if self._tried(self._restore, path)]
        for path in reversed(paths):
            if self._first[path].mode:
                self._tried(self._set_attributes, path)
        for folder in self._folders:
            self._tried(self._delete_saved, folder)

    def notes(self) -> Notes:
        fate = f"moved to {_named([str(self._written)], self._root)}" if self._written.exists() else "deleted"
        done = [f"restored: {_named(self._restored, self._root)}"] if self._restored else []
        done += [f"created by the run and {fate}: {_named(self._created, self._root)}"] if self._created else []
        failed = [("not-put-back", f"{_named([path], self._root)}: {why}") for path, why in self.failed]
        return ([("put-back", "; ".join(done))] if done else []) + failed

    def _tried(self, work: Callable[[str], None], path: str) -> bool:
        try:
            work(path)
        except OSError as error:
            self.failed.append((path, error.strerror or str(error)))
            return False
        return True

    def _restore(self, path: str) -> None:
        first = self._first[path]
        if not path:
            raise OSError(0, first.kept)
        is_file = modes.S_ISREG(first.mode)
        if is_file and not self._is_saved(first):
            if not _is_unchanged(path, first):
                raise OSError(0, "it was too large to be copied, there was no space, or another program wrote to it")
            return
        if _is_there(first):
            return
        self._clear(path)
        if modes.S_ISDIR(first.mode):
            os.mkdir(path)
        elif modes.S_ISLNK(first.mode):
            os.symlink(first.kept, path)
        elif is_file:
            try:
                os.link(first.kept, path)
            except OSError:  # it is a copy on another file system
                shutil.copyfile(first.kept, path)
        if first.mode:
            self._restored.add(path)

    def _is_saved(self, first: Record) -> bool:
        """Return True if the former content is saved. If the file was changed in place, copy the content back."""
        copy = first.kept + COPY
        if not os.path.exists(copy):
            return _is_unchanged(first.kept, first)
        if not filecmp.cmp(copy, first.kept, shallow=False):
            shutil.copyfile(copy, first.kept)
        return True

    def _clear(self, path: str) -> None:
        """Remove what the command has put at a path, but keep files that are not in its journal."""
        for file in _files(path):
            first = self._first.get(file)
            is_renamed = inode(os.lstat(file)) in self._inodes  # its former name has it, or gets it
            is_created = not is_renamed and (first is None or not first.mode)
            self._created |= {file} if is_created else set()
            if not is_created or (first is not None and not self._keep):
                os.unlink(file)
                continue
            target = self._written / os.path.relpath(file, self._root).replace("../", "")
            target.parent.mkdir(parents=True, exist_ok=True)
            while os.path.lexists(target):  # of a run before this one
                target = target.with_name(f"{target.name}~")
            shutil.move(file, target)
        if os.path.lexists(path):
            shutil.rmtree(path)

    def _delete_saved(self, folder: str) -> None:
        links = [path for path in Path(folder).glob("*") if "." not in path.name and str(path) not in self._saved]
        if any(path.lstat().st_nlink == 1 for path in links):
            raise OSError(0, "it holds former contents of files that no record names")
        if not self.failed:
            around = os.stat(os.path.dirname(folder))
            shutil.rmtree(folder, ignore_errors=True)
            os.utime(os.path.dirname(folder), ns=(around.st_atime_ns, around.st_mtime_ns))

    def _set_attributes(self, path: str) -> None:
        first, now = self._first[path], os.lstat(path)
        if (now.st_uid, now.st_gid) != (first.uid, first.gid):
            os.chown(path, first.uid, first.gid, follow_symlinks=False)
        if now.st_mode != first.mode:
            os.chmod(path, modes.S_IMODE(first.mode))
        if now.st_mtime_ns != first.mtime_ns:
            os.utime(path, ns=(now.st_atime_ns, first.mtime_ns), follow_symlinks=False)
        if (now.st_mode, now.st_mtime_ns) != (first.mode, first.mtime_ns) and not modes.S_ISDIR(first.mode):
            self._restored.add(path)


def list_folder(root: str, session: str) -> Listing | None:
    """List the entries in `root`, to find changes that bypass Python; None if there are too many.

    Excluded are the session, the system's own folders, and files that receive our output. Symbolic links are not
    followed.
    """
    entries: Listing = {}
    outputs = {inode(os.stat(f"/dev/fd/{number}")) for number in range(3) if os.path.isfile(f"/dev/fd/{number}")}
    excluded = {session, *no_work(root)}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in excluded]
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            with suppress(OSError):
                stat = os.lstat(path)
                if inode(stat) in outputs:
                    continue
                is_file = modes.S_ISREG(stat.st_mode)
                entries[path] = (stat.st_mode, stat.st_size * is_file, stat.st_mtime_ns * is_file)
        if len(entries) > MOST_LISTED:
            return None
    return entries


def listing_notes(root: str, old: Listing | None, new: Listing | None) -> Notes:
    """Return notes about the paths that differ."""
    if old is None or new is None:
        why = f"it has more than {MOST_LISTED} entries"
        return [("not-listed", f"the working directory was not searched for changes by other programs: {why}")]
    changes = {
        "changed": [path for path in new if path in old and old[path] != new[path]],
        "created": new.keys() - old.keys(),
        "removed": old.keys() - new.keys(),
    }
    texts = [f"{how} and not restored: {_named(paths, root)}" for how, paths in changes.items() if paths]
    return [("unseen-write", text) for text in texts]


def _named(paths: Collection[str], root: str) -> str:
    """Return the first paths as the user knows them: relative if in the working directory, bytes escaped."""
    shown = [os.path.relpath(path, root) if is_below(path, root) else path for path in sorted(paths)]
    text = ", ".join(os.fsencode(path).decode("utf-8", "backslashreplace") for path in shown[:MOST_NAMED])
    return f"{text} and {len(shown) - MOST_NAMED} more" if shown[MOST_NAMED:] else text


def _files(path: str) -> list[str]:
    """Return everything that is not a folder, at the path or below it."""
    if os.path.islink(path) or not os.path.isdir(path):
        return [path] if os.path.lexists(path) else []
    return [str(entry) for entry in Path(path).rglob("*") if entry.is_symlink() or not entry.is_dir()]


def _is_unchanged(path: str, first: Record) -> bool:
    """Return True if a file has the size and time of before."""
    now = lstat(path)
    return now is not None and (now.st_size, now.st_mtime_ns) == (first.size, first.mtime_ns)


def _is_there(first: Record) -> bool:
    """Return True if the entry of before is at its path, whatever its content."""
    now = lstat(first.path)
    if now is None or modes.S_IFMT(now.st_mode) != modes.S_IFMT(first.mode):
        return now is None and not first.mode
    if modes.S_ISREG(first.mode):
        return os.path.samestat(now, os.lstat(first.kept))
    return modes.S_ISDIR(first.mode) or os.readlink(first.path) == str(first.kept)
