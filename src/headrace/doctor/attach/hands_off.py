"""Record what a command writes, and restore the user's files once it has ended."""

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

from headrace.doctor.attach.process_tree import parse_process_stat
from headrace.doctor.attach.undo import Undo, Undone, read_journal
from headrace.doctor.probe import UNDO
from headrace.doctor.probe.hands_off.undo_folder import UndoFolder, no_work
from headrace.doctor.probe.settings import ProbeSettings
from headrace.errors import UsageError

# -- from doctor/hands_off/listing.py: What is below a folder, to see what else has changed there: by programs that
# are not Python, or by libraries that
# write without a word to it.


MOST_LISTED = 200_000
"""Of a larger folder nothing is listed: about a second of a local disk's time."""

ListedEntry = tuple[int, int, int]
"""Mode, size and modification time in ns; the latter two 0 but for files."""


@dataclass(frozen=True)
class FolderListing:
    """One look."""

    entries: dict[str, ListedEntry]
    why_not: str
    """Empty, or why nothing was listed."""


def list_folder(root: Path, besides: Path) -> FolderListing:
    """Of all below `root` but what is below `besides`, and what belongs to the system. Neither what symbolic links lead
    to is looked at, nor a file that our own output, and the command's, goes to."""
    entries: dict[str, ListedEntry] = {}
    ours = {(stat.st_dev, stat.st_ino) for stat in _outputs()}
    folders, not_ours = [str(root)], {str(besides), *no_work(str(root))}
    while folders:
        for entry in _scan(folders.pop()):
            stat = _stat(entry)
            if stat is None or (stat.st_dev, stat.st_ino) in ours or entry.path in not_ours:
                continue
            if len(entries) == MOST_LISTED:
                return FolderListing({}, f"it has more than {MOST_LISTED} entries")
            is_file = modes.S_ISREG(stat.st_mode)
            size, time_ns = (stat.st_size, stat.st_mtime_ns) if is_file else (0, 0)
            entries[entry.path] = (stat.st_mode, size, time_ns)
            if modes.S_ISDIR(stat.st_mode):
                folders.append(entry.path)
    return FolderListing(entries, "")


def listing_differences(before: FolderListing, after: FolderListing) -> list[tuple[str, str]]:
    """Paths, and what became of each: `made`, `removed` or `changed`."""
    if before.why_not or after.why_not:
        return []
    made = [(path, "made") for path in after.entries if path not in before.entries]
    removed = [(path, "removed") for path in before.entries if path not in after.entries]
    both = before.entries.keys() & after.entries.keys()
    changed = [(path, "changed") for path in both if before.entries[path] != after.entries[path]]
    return sorted(made + removed + changed)


def _outputs() -> Iterator[os.stat_result]:
    """Where our own output goes, the command's with it."""
    for descriptor in range(3):
        try:
            stat = os.fstat(descriptor)
        except OSError:
            continue
        if modes.S_ISREG(stat.st_mode):
            yield stat


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


# -- from doctor/hands_off/owner.py: Which doctor has to undo a run.


@dataclass(frozen=True)
class UndoOwner:
    """A process, and the folder that it has to leave as it was."""

    pid: int
    started_ticks: int
    root: Path

    @classmethod
    def of_this_process(cls, root: Path) -> UndoOwner:
        return cls(os.getpid(), _start_ticks(os.getpid()) or 0, root)

    @classmethod
    def read(cls, path: Path) -> UndoOwner:
        """Raises ValueError or OSError where it is none."""
        pid, started, root = path.read_bytes().split(b"\n", 2)
        return cls(int(pid), int(started), Path(os.fsdecode(root)))

    def write(self, path: Path) -> None:
        """In one step: from then on the command's processes write down what they change."""
        new = path.with_suffix(".new")
        new.write_bytes(b"%d\n%d\n%s" % (self.pid, self.started_ticks, os.fsencode(self.root)))
        new.replace(path)

    @property
    def lives(self) -> bool:
        return _start_ticks(self.pid) == self.started_ticks


def _start_ticks(pid: int) -> int | None:
    try:
        stat = parse_process_stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None
    return None if stat is None or stat.has_ended else stat.started_ticks


# -- from doctor/hands_off/lock.py: One measured run a folder: of two that write to the same files, neither could be
# undone alone.


@contextmanager
def exclusive_run(root: Path) -> Iterator[None]:
    """Nobody else measures in that folder meanwhile, nor in one below it or around it. Needs no file: the folders
    themselves are locked, which ends with this process. Where a file system has no locks, so much is not known.

    Raises UsageError where somebody does.
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
            f"expected a folder in which nothing else is measured, got {folder}, where a doctor runs that will put its "
            "files back; wait for it, give --observe, or run in a copy of the folder"
        ) from error
    except OSError:
        return


# -- from doctor/hands_off/trackers.py: Experiment trackers: offline, and their files in the session's folder.
# docs/doctor/hands-off.md has the variables.


_OFFLINE = {
    "WANDB_MODE": ("offline", {"disabled", "dryrun"}),
    "NEPTUNE_MODE": ("offline", {"debug", "disabled", "read-only"}),
    "SWANLAB_MODE": ("offline", {"disabled", "local"}),
    "CLEARML_OFFLINE_MODE": ("1", {"true", "yes"}),
    "COMET_START_ONLINE": ("0", {"false"}),
}
"""What takes each of them offline, and which of the user's own values do so as well."""
_FOLDERS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY", "NEPTUNE_DATA_DIRECTORY", "NEPTUNE_LOG_DIRECTORY")
_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_OF_A_SERVER = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")
"""Numbers that mean nothing elsewhere."""


def offline_environment(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The environment with each tracker told to write to `folder` alone."""
    environment = {name: value for name, value in inherited.items() if name not in _OF_A_SERVER}
    for name, (value, others) in _OFFLINE.items():
        if environment.get(name, "").lower() not in others:
            environment[name] = value
    environment.update(dict.fromkeys(_FOLDERS, str(folder)))
    environment.update(dict.fromkeys(_ADDRESSES, (folder / "mlflow").as_uri()))
    return environment


# -- from doctor/hands_off/hands_off.py: Around a command: what it writes is written down, and undone once it has
# ended.


WRITTEN = "written"
"""Folder of the session that takes what the command has made."""
TRACKERS = "trackers"


@dataclass(frozen=True)
class UndoReport:
    """What became of what the command had changed."""

    root: Path
    """The folder that is as before."""
    undone: Undone
    written: Path | None
    """Where the files are now that it had made; None where they were deleted, or there were none."""
    changed: list[tuple[str, str]] = field(default_factory=list)
    """What else is not as before, and how: `made`, `removed` or `changed`."""
    why_not_listed: str = ""
    """Why that was not looked for; else empty."""


class HandsOff:
    """Of one run. Where its settings name no scratch folder, nothing is done."""

    def __init__(self, settings: ProbeSettings, root: Path, *, keep: bool) -> None:
        self._is_on = bool(settings.scratch)
        self._folder = UndoFolder(os.path.realpath(settings.folder))
        self._scratch = Path(settings.scratch)
        self._root = root
        self._keep = keep
        self._before = FolderListing({}, "")
        self._put_back: UndoReport | None = None

    def begin(self) -> None:
        """Raises UsageError where the scratch folder cannot be written to."""
        try:
            self._begin()
        except OSError as error:
            raise UsageError(
                f"expected a folder that takes what the command changes, got {self._scratch} ({error.strerror}); "
                "make room there, set TMPDIR, give --keep, or --observe"
            ) from error

    def _begin(self) -> None:
        (self._scratch / TRACKERS).mkdir(parents=True, exist_ok=True)
        self._before = list_folder(self._root, besides=Path(self._folder.session))
        os.makedirs(self._folder.kept)
        Path(self._folder.journal).touch()
        UndoOwner.of_this_process(self._root).write(Path(self._folder.owner))

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """For the command."""
        return offline_environment(inherited, self._scratch / TRACKERS) if self._is_on else dict(inherited)

    def put_back(self) -> UndoReport | None:
        """To be called when all of the command's processes have ended. None where nothing was written down."""
        if self._is_on and self._put_back is None:
            undone = undo_run(self._folder, keep=self._keep)
            after = list_folder(self._root, besides=Path(self._folder.session))
            changed, why_not = listing_differences(self._before, after), self._before.why_not or after.why_not
            self._put_back = replace(undone, changed=changed, why_not_listed=why_not)
        return self._put_back


def holds_files(session: Path) -> bool:
    """Whether a session's folder has files of the user's that are nowhere else: what could not be put back, and what
    was made by nobody knows whom."""
    return (session / WRITTEN).exists() or (session / UNDO).parent.exists()


@contextmanager
def hands_off(settings: ProbeSettings, *, keep: bool = False) -> Iterator[HandsOff]:
    """Leaves the current folder as it was, whatever a command does that runs within. With `keep`, what it made goes to
    the session's folder, else it is deleted.

    Raises UsageError where another doctor measures in the folder.
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


def undo_run(folder: UndoFolder, *, keep: bool) -> UndoReport:
    """Undoes what the journal of that folder tells, and removes the journal, unless it is still needed. Never raises
    OSError: what could not be done is in what it gives."""
    root = Path(folder.root())
    written = Path(folder.session) / WRITTEN
    try:
        undone = _undo(root, folder, written, keep=keep)
    except OSError as error:
        undone = Undone(failed=[("", f"{folder.path}: {error.strerror}")])
    return UndoReport(root, undone, written if written.exists() else None)


def _undo(root: Path, folder: UndoFolder, written: Path, *, keep: bool) -> Undone:
    journal = read_journal(Path(folder.journal))
    undone = Undo(root, journal, written, keep=keep).run()
    undone.failed += [("", fault) for fault in journal.faults]
    if set(os.listdir(folder.kept)) - journal.kept:
        undone.failed.append(("", f"{folder.kept} holds former contents of files that no record names"))
    os.unlink(folder.owner)  # it is done, as far as it can be
    if not undone.failed:
        shutil.rmtree(folder.path)
    return undone


# -- from doctor/hands_off/unfinished.py: Runs whose doctor was killed before it could undo them.


SESSIONS = "headrace-doctor-*"
"""Names of the folders of sessions that nobody asked to keep."""


def restore_session(session: Path) -> UndoReport:
    """Undoes the run of that session, and leaves what it made in the session's folder.

    Raises UsageError where there is nothing to undo, or it is still being written.
    """
    folder, owner = _left_in(session)
    if owner.lives:
        raise UsageError(
            f"expected a session whose doctor was killed, got {session}, whose doctor (process {owner.pid}) runs and "
            "will put the files back itself"
        )
    users = list(_processes_of(folder.session))
    if users:
        raise UsageError(
            f"expected a session whose command has ended, got {session}, of which process {users[0]} still runs; "
            "end it first"
        )
    with exclusive_run(owner.root):
        return undo_run(folder, keep=True)


def _left_in(session: Path) -> tuple[UndoFolder, UndoOwner]:
    """What is left to undo."""
    folder = UndoFolder(os.path.realpath(session))
    try:
        return folder, UndoOwner.read(Path(folder.owner))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"expected the folder of a session whose doctor was killed, got {session}, in which nothing is left to undo"
        ) from error


def unfinished_sessions(root: Path) -> list[Path]:
    """Sessions in the folder of temporary files, proofs among them, with a run in `root` that was not undone, and is
    this user's."""
    return [session for session in sorted(Path(tempfile.gettempdir()).glob(SESSIONS)) if _is_unfinished(session, root)]


def _is_unfinished(session: Path, root: Path) -> bool:
    """Only what this user has written is believed: a journal says which files to overwrite."""
    owner_file = Path(UndoFolder(str(session)).owner)
    try:
        if {session.lstat().st_uid, owner_file.lstat().st_uid} != {os.geteuid()} or session.is_symlink():
            return False
        owner = UndoOwner.read(owner_file)
    except (OSError, ValueError):
        return False
    return owner.root == root and not owner.lives


def _processes_of(session: str) -> Iterator[int]:
    """Processes that write down what they change for that session."""
    mark = b"HEADRACE_DOCTOR=" + os.fsencode(session)
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                variables = Path("/proc", name, "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if mark in variables:
                yield int(name)


# -- from doctor/hands_off/words.py: What became of the user's files, in sentences.


MOST_NAMED = 5
"""Paths that a sentence names; of more it gives the number."""


def undo_notes(put_back: UndoReport) -> Iterator[tuple[str, str]]:
    """Codes of notes, of docs/doctor/evidence.md, and what each says."""
    undone, root = put_back.undone, put_back.root
    if undone.restored or undone.taken:
        yield "put-back", _put_back(put_back)
    for path, why in undone.failed:
        yield "not-put-back", f"{_shown(path, root)}: {why}" if path else why
    for how in ("changed", "made", "removed"):
        paths = [path for path, what in put_back.changed if what == how]
        if paths:
            yield "unseen-write", f"{how} and left so: {_named(paths, root)}"
    if put_back.why_not_listed:
        yield "not-listed", f"{_text(root)} was not searched for changes of other programs: {put_back.why_not_listed}"


def _put_back(put_back: UndoReport) -> str:
    undone, root = put_back.undone, put_back.root
    parts = []
    if undone.restored:
        parts.append(f"as before the run again: {_named(undone.restored, root)}")
    if undone.taken:
        parts.append(f"made by it and {_fate(put_back)}: {_named(undone.taken, root)}")
    return "; ".join(parts)


def _fate(put_back: UndoReport) -> str:
    """Of what the command had made."""
    return "deleted" if put_back.written is None else f"moved to {_text(put_back.written)}"


def _named(paths: list[str], root: Path) -> str:
    names = ", ".join(_shown(path, root) for path in sorted(paths)[:MOST_NAMED])
    return names if len(paths) <= MOST_NAMED else f"{names} and {len(paths) - MOST_NAMED} more"


def _shown(path: str, root: Path) -> str:
    """As the user knows it: below the working directory without its name."""
    return _text(os.path.relpath(path, root) if Path(path).is_relative_to(root) else path)


def _text(path: str | Path) -> str:
    """A session holds Unicode; of a path that is none, the bytes that are not are shown as such."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
