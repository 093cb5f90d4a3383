"""Runs whose doctor was killed before it could undo them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from headrace.doctor.attach.hands_off import PutBack, undo
from headrace.doctor.hands_off.lock import alone_in
from headrace.doctor.hands_off.owner import Owner
from headrace.doctor.probe.hands_off.folder import UndoFolder
from headrace.errors import UsageError

SESSIONS = "headrace-doctor-*"
"""Names of the folders of sessions that nobody asked to keep."""


def restore(session: Path) -> PutBack:
    """Undoes the run of that session, and leaves what it made in the session's folder.

    Raises UsageError where there is nothing to undo, or it is still being written.
    """
    folder, owner = _left_in(session)
    if owner.lives:
        raise UsageError(
            f"expected a session whose doctor was killed, got {session}, whose doctor (process {owner.pid}) runs and "
            "will put the files back itself"
        )
    users = list(_users(folder.session))
    if users:
        raise UsageError(
            f"expected a session whose command has ended, got {session}, of which process {users[0]} still runs; "
            "end it first"
        )
    with alone_in(owner.root):
        return undo(folder, keep=True)


def _left_in(session: Path) -> tuple[UndoFolder, Owner]:
    """What is left to undo."""
    folder = UndoFolder(os.path.realpath(session))
    try:
        return folder, Owner.read(Path(folder.owner))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"expected the folder of a session whose doctor was killed, got {session}, in which nothing is left to undo"
        ) from error


def unfinished(root: Path) -> list[Path]:
    """Sessions in the folder of temporary files, proofs among them, with a run in `root` that was not undone, and is
    this user's."""
    return [session for session in sorted(Path(tempfile.gettempdir()).glob(SESSIONS)) if _is_unfinished(session, root)]


def _is_unfinished(session: Path, root: Path) -> bool:
    """Only what this user has written is believed: a journal says which files to overwrite."""
    owner_file = Path(UndoFolder(str(session)).owner)
    try:
        if {session.lstat().st_uid, owner_file.lstat().st_uid} != {os.geteuid()} or session.is_symlink():
            return False
        owner = Owner.read(owner_file)
    except (OSError, ValueError):
        return False
    return owner.root == root and not owner.lives


def _users(session: str) -> Iterator[int]:
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
