"""Record what a command writes, and restore the user's files once it has ended (docs/doctor/hands-off.md)."""

from __future__ import annotations

import fcntl
import os
import shutil
import stat as modes
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.doctor.probe import UNDO, ProbeSettings
from headrace.doctor.probe.hands_off.undo_folder import UndoFolder, no_work
from headrace.errors import UsageError

from .injection import FOLDER_VARIABLE
from .process_tree import all_pids, process_environment, process_stat
from .undo import Undo, Undone, read_journal

MOST_LISTED = 200_000
"""Entries of a folder beyond which it is not listed: about a second of a local disk's time."""
MOST_NAMED = 5
"""Paths that a note names; beyond these it gives their number."""
SESSIONS = "headrace-doctor-*"
"""Names of temporary session folders."""
WRITTEN = "written"
"""Folder of the session that receives the files that the command created."""
TRACKERS = "trackers"
_OFFLINE = {
    "WANDB_MODE": ("offline", {"disabled", "dryrun"}),
    "NEPTUNE_MODE": ("offline", {"debug", "disabled", "read-only"}),
    "SWANLAB_MODE": ("offline", {"disabled", "local"}),
    "CLEARML_OFFLINE_MODE": ("1", {"true", "yes"}),
    "COMET_START_ONLINE": ("0", {"false"}),
}
"""The value that takes each tracker offline, and the user's own values that do so as well."""
_TRACKER_FOLDERS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY", "NEPTUNE_DATA_DIRECTORY", "NEPTUNE_LOG_DIRECTORY")
_TRACKER_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_SERVER_IDS = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")
"""Numbers that mean nothing away from their server."""


@dataclass(frozen=True)
class UndoReport:
    """What became of the files that the command had changed."""

    root: Path
    """The folder that is restored."""
    undone: Undone
    written: Path | None
    """Where the files are that the command created; None if they were deleted, or there were none."""
    changed: list[tuple[str, str]] = field(default_factory=list)
    """Paths that differ nevertheless, and how: `created`, `removed` or `changed`."""
    why_not_listed: str = ""
    """Why nobody looked for such paths; empty if somebody did."""


class HandsOff:
    """The user's files during one run. It does nothing if the settings name no scratch folder."""

    def __init__(self, settings: ProbeSettings, root: Path, *, keep: bool) -> None:
        """Protect `root`; what the command creates is moved to the session's folder with `keep`, or else deleted."""
        self._is_on = bool(settings.scratch)
        self._folder = UndoFolder(os.path.realpath(settings.folder))
        self._scratch = Path(settings.scratch)
        self._root = root
        self._keep = keep
        self._before = FolderListing({}, "")
        self._report: UndoReport | None = None

    def begin(self) -> None:
        """List the folder, and make the journal. Raises UsageError if the scratch folder cannot be written to."""
        try:
            (self._scratch / TRACKERS).mkdir(parents=True, exist_ok=True)
            self._before = list_folder(self._root, besides=Path(self._folder.session))
            os.makedirs(self._folder.kept)
            Path(self._folder.journal).touch()
            UndoOwner.of_this_process(self._root).write(Path(self._folder.owner))
        except OSError as error:
            raise UsageError(
                f"expected a folder that takes what the command changes, got {self._scratch} ({error.strerror}); "
                "make room there, set TMPDIR, give --keep, or --observe"
            ) from error

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """Return the command's environment."""
        return offline_environment(inherited, self._scratch / TRACKERS) if self._is_on else dict(inherited)

    def put_back(self) -> UndoReport | None:
        """Restore the folder after all of the command's processes have ended. Returns None if nothing was recorded."""
        if self._is_on and self._report is None:
            report = undo_run(self._folder, keep=self._keep)
            after = list_folder(self._root, besides=Path(self._folder.session))
            changed, why_not = listing_differences(self._before, after), self._before.why_not or after.why_not
            self._report = replace(report, changed=changed, why_not_listed=why_not)
        return self._report


@contextmanager
def hands_off(settings: ProbeSettings, *, keep: bool = False) -> Iterator[HandsOff]:
    """Leave the current folder as it was, whatever a command within does.

    What the command creates is moved to the session's folder with `keep`, or else deleted. Raises UsageError if another
    doctor measures in the folder.
    """
    root = Path(os.path.realpath(os.getcwd()))
    hands = HandsOff(settings, root, keep=keep)
    if not settings.scratch:
        yield hands
        return
    with exclusive_run(root):
        hands.begin()
        try:
            yield hands
        finally:
            hands.put_back()


def holds_files(session: Path) -> bool:
    """Return whether a session's folder has files of the user's that exist nowhere else."""
    return (session / WRITTEN).exists() or (session / UNDO).parent.exists()


def offline_environment(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with each experiment tracker offline, and writing to `folder` alone."""
    environment = {name: value for name, value in inherited.items() if name not in _SERVER_IDS}
    for name, (value, others) in _OFFLINE.items():
        if environment.get(name, "").lower() not in others:
            environment[name] = value
    environment.update(dict.fromkeys(_TRACKER_FOLDERS, str(folder)))
    environment.update(dict.fromkeys(_TRACKER_ADDRESSES, (folder / "mlflow").as_uri()))
    return environment


@contextmanager
def exclusive_run(root: Path) -> Iterator[None]:
    """Keep other doctors from measuring in a folder, below it or around it: neither run could be undone alone.

    Locks the folders themselves, until this process ends; a file system without locks does not hold anybody back.
    Raises UsageError if another doctor measures there.
    """
    with ExitStack() as stack:
        for folder in (root, *root.parents):
            _lock(stack, folder, fcntl.LOCK_EX if folder == root else fcntl.LOCK_SH)
        yield


def _lock(stack: ExitStack, folder: Path, kind: int) -> None:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    stack.callback(os.close, descriptor)
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise UsageError(
            f"expected a folder in which nothing else is measured, got {folder}, where a doctor runs that will restore "
            "its files; wait for it, give --observe, or run in a copy of the folder"
        ) from error
    except OSError:
        return


@dataclass(frozen=True)
class UndoOwner:
    """The doctor that has to undo a run, and the folder that it has to restore."""

    pid: int
    started_ticks: int
    root: Path

    @classmethod
    def of_this_process(cls, root: Path) -> UndoOwner:
        stat = process_stat(os.getpid())
        return cls(os.getpid(), 0 if stat is None else stat.started_ticks, root)

    @classmethod
    def read(cls, path: Path) -> UndoOwner:
        """Read what `write` wrote. Raises ValueError or OSError if there is no such file."""
        pid, started, root = path.read_bytes().split(b"\n", 2)
        return cls(int(pid), int(started), Path(os.fsdecode(root)))

    def write(self, path: Path) -> None:
        """Write the file in one step: from then on the command's processes record what they change."""
        new = path.with_suffix(".new")
        new.write_bytes(b"%d\n%d\n%s" % (self.pid, self.started_ticks, os.fsencode(self.root)))
        new.replace(path)

    @property
    def lives(self) -> bool:
        stat = process_stat(self.pid)
        return stat is not None and not stat.has_ended and stat.started_ticks == self.started_ticks


def undo_run(folder: UndoFolder, *, keep: bool) -> UndoReport:
    """Undo a run by its journal, and delete the journal unless something failed.

    Never raises OSError: the report has what failed.
    """
    root, written = Path(folder.root()), Path(folder.session) / WRITTEN
    try:
        journal = read_journal(Path(folder.journal))
        undone = Undo(root, journal, written, keep=keep).run()
        undone.failed += [("", fault) for fault in journal.faults]
        if set(os.listdir(folder.kept)) - journal.kept:
            undone.failed.append(("", f"{folder.kept} holds former contents of files that no record names"))
        os.unlink(folder.owner)  # it is done, as far as it can be
        if not undone.failed:
            shutil.rmtree(folder.path)
    except OSError as error:
        undone = Undone(failed=[("", f"{folder.path}: {error.strerror}")])
    return UndoReport(root, undone, written if written.exists() else None)


def restore_session(session: Path) -> UndoReport:
    """Undo the run of a session whose doctor was killed; what it created goes to the session's folder.

    Raises UsageError if there is nothing to undo, or the doctor or the command still runs.
    """
    folder = UndoFolder(os.path.realpath(session))
    try:
        owner = UndoOwner.read(Path(folder.owner))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"expected the folder of a session whose doctor was killed, got {session}, in which nothing is left to undo"
        ) from error
    if owner.lives:
        raise UsageError(
            f"expected a session whose doctor was killed, got {session}, whose doctor (process {owner.pid}) runs and "
            "will restore the files itself"
        )
    for pid in all_pids():
        if (process_environment(pid) or {}).get(FOLDER_VARIABLE) == folder.session:
            raise UsageError(
                f"expected a session whose command has ended, got {session}, of which process {pid} still runs; "
                "end it first"
            )
    with exclusive_run(owner.root):
        return undo_run(folder, keep=True)


def unfinished_sessions(root: Path) -> list[Path]:
    """List this user's temporary sessions, those of proofs included, with a run in `root` that was not undone."""
    return [session for session in sorted(Path(tempfile.gettempdir()).glob(SESSIONS)) if _is_unfinished(session, root)]


def _is_unfinished(session: Path, root: Path) -> bool:
    """Return whether a session is to be undone. Only this user is believed: a journal says which files to overwrite."""
    owner_file = Path(UndoFolder(str(session)).owner)
    try:
        if {session.lstat().st_uid, owner_file.lstat().st_uid} != {os.geteuid()} or session.is_symlink():
            return False
        owner = UndoOwner.read(owner_file)
    except (OSError, ValueError):
        return False
    return owner.root == root and not owner.lives


@dataclass(frozen=True)
class FolderListing:
    """Entries below a folder by path: mode, size and modification time in ns, the latter two 0 unless a file's."""

    entries: dict[str, tuple[int, int, int]]
    why_not: str
    """Why nothing was listed; empty if it was."""


def list_folder(root: Path, besides: Path) -> FolderListing:
    """List what is below `root`, to find what changes without Python's knowledge.

    Leaves out what is below `besides`, the system's own folders, and files that our own output goes to. Does not follow
    symbolic links.
    """
    entries: dict[str, tuple[int, int, int]] = {}
    ours, excluded = _output_files(), {str(besides), *no_work(str(root))}
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
                return FolderListing({}, f"it has more than {MOST_LISTED} entries")
            size, time_ns = (stat.st_size, stat.st_mtime_ns) if modes.S_ISREG(stat.st_mode) else (0, 0)
            entries[path] = (stat.st_mode, size, time_ns)
    return FolderListing(entries, "")


def _output_files() -> set[tuple[int, int]]:
    """Return device and inode of the files that our own output goes to, and the command's with it."""
    found = set()
    for descriptor in range(3):
        try:
            stat = os.fstat(descriptor)
        except OSError:
            continue
        if modes.S_ISREG(stat.st_mode):
            found.add((stat.st_dev, stat.st_ino))
    return found


def listing_differences(before: FolderListing, after: FolderListing) -> list[tuple[str, str]]:
    """Return the paths that differ, and what became of each: `created`, `removed` or `changed`."""
    if before.why_not or after.why_not:
        return []
    old, new = before.entries, after.entries
    changes = [(path, "changed" if path in old else "created") for path in new if old.get(path) != new[path]]
    return sorted(changes + [(path, "removed") for path in old if path not in new])


def undo_notes(report: UndoReport) -> Iterator[tuple[str, str]]:
    """Yield notes about the user's files: a code of docs/doctor/evidence.md, and a text."""
    undone, root = report.undone, report.root
    fate = "deleted" if report.written is None else f"moved to {_text(report.written)}"
    said = [f"restored: {_named(undone.restored, root)}"] if undone.restored else []
    said += [f"created by the run and {fate}: {_named(undone.taken, root)}"] if undone.taken else []
    if said:
        yield "put-back", "; ".join(said)
    for path, why in undone.failed:
        yield "not-put-back", f"{_shown(path, root)}: {why}" if path else why
    for how in ("changed", "created", "removed"):
        paths = [path for path, what in report.changed if what == how]
        if paths:
            yield "unseen-write", f"{how} and not restored: {_named(paths, root)}"
    if report.why_not_listed:
        yield "not-listed", f"{_text(root)} was not searched for changes by other programs: {report.why_not_listed}"


def _named(paths: list[str], root: Path) -> str:
    names = ", ".join(_shown(path, root) for path in sorted(paths)[:MOST_NAMED])
    return names if len(paths) <= MOST_NAMED else f"{names} and {len(paths) - MOST_NAMED} more"


def _shown(path: str, root: Path) -> str:
    """Return a path as the user knows it: relative to the working directory if it lies there."""
    return _text(os.path.relpath(path, root) if Path(path).is_relative_to(root) else path)


def _text(path: str | Path) -> str:
    """Return a path as Unicode, since a session holds no other text, with other bytes escaped."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
