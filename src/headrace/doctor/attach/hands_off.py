"""Around a command: what it writes is written down, and undone once it has ended."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.doctor.attach.undo import Undo, Undone
from headrace.doctor.hands_off.before import read_journal
from headrace.doctor.hands_off.listing import Listing, differences, listing
from headrace.doctor.hands_off.lock import alone_in
from headrace.doctor.hands_off.owner import Owner
from headrace.doctor.hands_off.trackers import offline
from headrace.doctor.probe import UNDO
from headrace.doctor.probe.hands_off.folder import UndoFolder
from headrace.doctor.probe.settings import Settings
from headrace.errors import UsageError

WRITTEN = "written"
"""Folder of the session that takes what the command has made."""
TRACKERS = "trackers"


@dataclass(frozen=True)
class PutBack:
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

    def __init__(self, settings: Settings, root: Path, *, keep: bool) -> None:
        self._is_on = bool(settings.scratch)
        self._folder = UndoFolder(os.path.realpath(settings.folder))
        self._scratch = Path(settings.scratch)
        self._root = root
        self._keep = keep
        self._before = Listing({}, "")
        self._put_back: PutBack | None = None

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
        self._before = listing(self._root, besides=Path(self._folder.session))
        os.makedirs(self._folder.kept)
        Path(self._folder.journal).touch()
        Owner.of_this_process(self._root).write(Path(self._folder.owner))

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """For the command."""
        return offline(inherited, self._scratch / TRACKERS) if self._is_on else dict(inherited)

    def put_back(self) -> PutBack | None:
        """To be called when all of the command's processes have ended. None where nothing was written down."""
        if self._is_on and self._put_back is None:
            undone = undo(self._folder, keep=self._keep)
            after = listing(self._root, besides=Path(self._folder.session))
            changed, why_not = differences(self._before, after), self._before.why_not or after.why_not
            self._put_back = replace(undone, changed=changed, why_not_listed=why_not)
        return self._put_back


def holds_files(session: Path) -> bool:
    """Whether a session's folder has files of the user's that are nowhere else: what could not be put back, and what
    was made by nobody knows whom."""
    return (session / WRITTEN).exists() or (session / UNDO).parent.exists()


@contextmanager
def hands_off(settings: Settings, *, keep: bool = False) -> Iterator[HandsOff]:
    """Leaves the current folder as it was, whatever a command does that runs within. With `keep`, what it made goes to
    the session's folder, else it is deleted.

    Raises UsageError where another doctor measures in the folder.
    """
    root = Path(os.path.realpath(os.getcwd()))
    hands = HandsOff(settings, root, keep=keep)
    if not settings.scratch:
        yield hands
        return
    with alone_in(root):
        hands.begin()
        try:
            yield hands
        finally:
            hands.put_back()


def undo(folder: UndoFolder, *, keep: bool) -> PutBack:
    """Undoes what the journal of that folder tells, and removes the journal, unless it is still needed. Never raises
    OSError: what could not be done is in what it gives."""
    root = Path(folder.root())
    written = Path(folder.session) / WRITTEN
    try:
        undone = _undo(root, folder, written, keep=keep)
    except OSError as error:
        undone = Undone(failed=[("", f"{folder.path}: {error.strerror}")])
    return PutBack(root, undone, written if written.exists() else None)


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
