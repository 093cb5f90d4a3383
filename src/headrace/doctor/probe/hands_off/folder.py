"""Where a session keeps what is needed to undo its run."""

from __future__ import annotations

import os

from .. import UNDO


class UndoFolder:
    """`SESSION/scratch/undo`. The doctor makes it; the command's processes write in it."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.owner = os.path.join(session, UNDO)
        """A file of the doctor's pid, its start in clock ticks since boot, and the folder to be as before; absent where
        nothing is to be undone. The three are lines; a folder's name may hold line ends, so it comes last."""
        self.path = os.path.dirname(self.owner)
        self.journal = os.path.join(self.path, "journal")
        self.kept = os.path.join(self.path, "kept")
        """A folder for former contents."""

    def root(self) -> str:
        """The folder to be as before, with no symbolic link in it."""
        with open(self.owner, "rb") as file:
            return os.fsdecode(file.read().split(b"\n", 2)[2])
