"""Record what a command writes, and restore the user's files once it has ended (docs/doctor/attach.md#hands-off)."""

from __future__ import annotations

import fcntl
import os
import stat as modes
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from unittest.mock import patch

from headrace.doctor.probe import UNDO, ProbeSettings
from headrace.doctor.probe import hands_off as recorder
from headrace.doctor.probe.undo_folder import UndoFolder, no_work
from headrace.errors import UsageError

from .injection import FOLDER_VARIABLE
from .process_tree import all_pids, process_environment, process_stat
from .undo import WRITTEN, UndoReport, undo_run

MOST_LISTED = 200_000
"""Number of entries above which a folder is not listed: about a second on a local disk."""
MOST_NAMED = 5
"""Number of paths that a note names; further paths are only counted."""
SESSIONS = "headrace-doctor-*"
"""Names of temporary session folders."""
TRACKERS = "trackers"
_OFFLINE = {
    "WANDB_MODE": ("offline", {"disabled", "dryrun"}),
    "NEPTUNE_MODE": ("offline", {"debug", "disabled", "read-only"}),
    "SWANLAB_MODE": ("offline", {"disabled", "local"}),
    "CLEARML_OFFLINE_MODE": ("1", {"true", "yes"}),
    "COMET_START_ONLINE": ("0", {"false"}),
}
"""The value that takes each tracker offline, and user values with the same effect."""
_TRACKER_FOLDERS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY", "NEPTUNE_DATA_DIRECTORY", "NEPTUNE_LOG_DIRECTORY")
_TRACKER_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_SERVER_IDS = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")
"""Ids that are only valid on their server."""


@contextmanager
def hands_off(settings: ProbeSettings, *, keep: bool = False) -> Iterator[Callable[[], UndoReport | None]]:
    """Leave the current folder as it was, whatever a command run in the context does.

    Files created by the command are moved to the session's folder with `keep`, or else deleted. Yields a function that
    restores the folder after all processes of the command have ended. The function returns None if the settings name no
    scratch folder, so nothing is recorded. Raises UsageError if another doctor measures in the folder, or the scratch
    folder is not writable.
    """
    if not settings.scratch:
        yield lambda: None
        return
    root = Path(os.path.realpath(os.getcwd()))
    folder = UndoFolder(os.path.realpath(settings.folder))
    with exclusive_run(root):
        before = begin_record(folder, Path(settings.scratch), root)

        @cache
        def put_back() -> UndoReport:
            report = undo_run(folder, keep=keep)
            after = list_folder(root, besides=Path(folder.session))
            is_listed = before is not None and after is not None
            return replace(report, changed=listing_differences(before, after), is_listed=is_listed)

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
            report = put_back()
        for _, text in () if report is None else undo_notes(report):
            print(text)


def begin_record(folder: UndoFolder, scratch: Path, root: Path) -> Listing | None:
    """List the folder `root`, and create the journal of its changes from now on."""
    try:
        (scratch / TRACKERS).mkdir(parents=True, exist_ok=True)
        listing = list_folder(root, besides=Path(folder.session))
        os.makedirs(folder.kept, 0o700)
        Path(folder.journal).touch()
        stat = process_stat(os.getpid())
        started = 0 if stat is None else stat.started_ticks
        new = Path(folder.owner).with_suffix(".new")
        new.write_bytes(b"%d\n%d\n%s" % (os.getpid(), started, os.fsencode(root)))
        new.replace(folder.owner)  # atomic: from then on the command's processes record their changes
    except OSError as error:
        raise UsageError(
            f"expected a folder that takes what the command changes, got {scratch} ({error.strerror}); "
            "make room there, set TMPDIR, give --keep, or --observe"
        ) from error
    return listing


def holds_files(session: Path) -> bool:
    """Return True if a session's folder holds user files that exist nowhere else."""
    return (session / WRITTEN).exists() or not is_undone(session)


def is_undone(session: Path) -> bool:
    """Return True if every file that the session's run changed is restored."""
    return not (session / UNDO).parent.exists()


def offline_environment(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with each experiment tracker offline and writing only to `folder`."""
    environment = {name: value for name, value in inherited.items() if name not in _SERVER_IDS}
    for name, (value, others) in _OFFLINE.items():
        if environment.get(name, "").lower() not in others:
            environment[name] = value
    environment.update(dict.fromkeys(_TRACKER_FOLDERS, str(folder)))
    environment.update(dict.fromkeys(_TRACKER_ADDRESSES, (folder / "mlflow").as_uri()))
    return environment


@contextmanager
def exclusive_run(root: Path) -> Iterator[None]:
    """Exclude other doctors from a folder, its subfolders and its parents: neither run could be undone alone.

    Locks the folders themselves until this process ends; without locks in the file system, nobody is excluded. Raises
    UsageError if another doctor measures there.
    """
    with ExitStack() as stack:
        for folder in (root, *root.parents):
            kind = fcntl.LOCK_EX if folder == root else fcntl.LOCK_SH
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


def restore_session(session: Path) -> UndoReport:
    """Undo the run of a session whose doctor was killed; files it created go to the session's folder.

    Raises UsageError if there is nothing to undo, or the doctor or the command still runs.
    """
    folder = UndoFolder(os.path.realpath(session))
    try:
        doctor, _, root = folder.owned()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"expected the folder of a session whose doctor was killed, got {session}, in which nothing is left to undo"
        ) from error
    if _doctor_lives(folder):
        raise UsageError(
            f"expected a session whose doctor was killed, got {session}, whose doctor (process {doctor}) runs and "
            "will restore the files itself"
        )
    for pid in all_pids():
        if (process_environment(pid) or {}).get(FOLDER_VARIABLE) == folder.session:
            raise UsageError(
                f"expected a session whose command has ended, got {session}, of which process {pid} still runs; "
                "end it first"
            )
    with exclusive_run(Path(root)):
        return undo_run(folder, keep=True)


def _doctor_lives(folder: UndoFolder) -> bool:
    pid, started, _ = folder.owned()
    stat = process_stat(pid)
    return stat is not None and not stat.has_ended and stat.started_ticks == started


def unfinished_sessions(root: Path) -> list[Path]:
    """List this user's temporary sessions, proofs included, with a run in `root` that was not undone."""
    return [session for session in sorted(Path(tempfile.gettempdir()).glob(SESSIONS)) if _is_unfinished(session, root)]


def _is_unfinished(session: Path, root: Path) -> bool:
    """Return True if a session should be undone. Only this user is trusted: a journal says which files to overwrite."""
    folder = UndoFolder(str(session))
    try:
        owners = {session.lstat().st_uid, os.lstat(folder.owner).st_uid}
        is_own = owners == {os.geteuid()} and not session.is_symlink()
        return is_own and Path(folder.owned()[2]) == root and not _doctor_lives(folder)
    except (OSError, ValueError):
        return False


Listing = dict[str, tuple[int, int, int]]
"""Entries in a folder by path: mode, size and modification time in ns, the latter two 0 except for files."""


def list_folder(root: Path, besides: Path) -> Listing | None:
    """List the entries in `root`, to find changes that bypass Python; None if there are too many.

    Excluded are `besides`, the system's own folders, and files that receive our output. Symbolic links are not
    followed.
    """
    entries: Listing = {}
    outputs = [os.stat(name) for name in map("/dev/fd/{}".format, range(3)) if os.path.isfile(name)]
    ours = {(stat.st_dev, stat.st_ino) for stat in outputs}
    excluded = {str(besides), *no_work(str(root))}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in excluded]
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            try:
                stat = os.lstat(path)
            except OSError:
                continue
            if (stat.st_dev, stat.st_ino) in ours:
                continue
            if len(entries) == MOST_LISTED:
                return None
            size, time_ns = (stat.st_size, stat.st_mtime_ns) if modes.S_ISREG(stat.st_mode) else (0, 0)
            entries[path] = (stat.st_mode, size, time_ns)
    return entries


def listing_differences(old: Listing | None, new: Listing | None) -> list[tuple[str, str]]:
    """Return the paths that differ, each with `created`, `removed` or `changed`."""
    if old is None or new is None:
        return []
    changes = [(path, "changed" if path in old else "created") for path in new if old.get(path) != new[path]]
    return sorted(changes + [(path, "removed") for path in old if path not in new])


def undo_notes(report: UndoReport) -> Iterator[tuple[str, str]]:
    """Yield notes about the user's files: a code of docs/doctor/session.md, and a text."""
    root = report.root
    fate = "deleted" if report.written is None else f"moved to {_text(report.written)}"
    said = [f"restored: {_named(report.restored, root)}"] if report.restored else []
    said += [f"created by the run and {fate}: {_named(report.taken, root)}"] if report.taken else []
    if said:
        yield "put-back", "; ".join(said)
    for path, why in report.failed:
        yield "not-put-back", f"{_shown(path, root)}: {why}" if path else why
    for how in ("changed", "created", "removed"):
        paths = [path for path, what in report.changed if what == how]
        if paths:
            yield "unseen-write", f"{how} and not restored: {_named(paths, root)}"
    if not report.is_listed:
        why = f"it has more than {MOST_LISTED} entries"
        yield "not-listed", f"{_text(root)} was not searched for changes by other programs: {why}"


def _named(paths: list[str], root: Path) -> str:
    names = ", ".join(_shown(path, root) for path in sorted(paths)[:MOST_NAMED])
    return names if len(paths) <= MOST_NAMED else f"{names} and {len(paths) - MOST_NAMED} more"


def _shown(path: str, root: Path) -> str:
    """Return a path as the user knows it: relative if it is in the working directory."""
    return _text(os.path.relpath(path, root) if Path(path).is_relative_to(root) else path)


def _text(path: str | Path) -> str:
    """Return a path as Unicode for the session, with other bytes escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
