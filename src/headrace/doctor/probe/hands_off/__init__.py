"""Hands off the user's work: record what a measured run is about to change on disk, so that it can be undone.

docs/doctor/attach.md describes the journal's format, and what it does not see.
"""

from __future__ import annotations

import os
import sys

from . import audit
from .journal import UndoJournal
from .undo_folder import UndoFolder

_journal: UndoJournal | None = None
_is_hooked = False


def start(session: str) -> None:
    """Record what this process changes from now on, for a session whose run is to be undone.

    One call a process is enough, and forks continue it.
    """
    global _journal, _is_hooked
    if _journal is None:
        folder = UndoFolder(os.path.realpath(session))
        _journal = UndoJournal(folder, folder.owned()[2])
    if not _is_hooked:
        sys.addaudithook(audit.audit_hook(active))
        _is_hooked = True


def active() -> UndoJournal | None:
    """Return the journal of this process, while there is one."""
    return _journal


def stop() -> None:
    """Stop recording. The hook stays, since Python takes none back, and does nothing from now on."""
    global _journal
    _journal = None
