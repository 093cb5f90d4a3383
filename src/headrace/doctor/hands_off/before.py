"""What each path was before the command, as the undo journal has it."""

from __future__ import annotations

import os
import stat as modes
from dataclasses import dataclass, field
from pathlib import Path

from headrace.doctor.probe.hands_off.records import ABSENT, COPIED, LINKED, LOST, Record, decoded


@dataclass
class Before:
    """One path."""

    first: Record
    contents: list[Record] = field(default_factory=list)
    """Records that its content was kept with, oldest first: the first that still has it counts."""
    lost: str = ""
    """Why there is none."""

    @property
    def path(self) -> str:
        return self.first.path

    @property
    def was_absent(self) -> bool:
        return self.first.kind == ABSENT

    def is_as_it_was(self) -> bool:
        """Whether nothing tells it from what it was: of a file, that it is the same one, its size and times."""
        try:
            now = os.lstat(self.path)
        except OSError:
            return self.was_absent
        first = self.first
        same = (now.st_mode, now.st_ino) == (first.mode, first.inode)
        return same and (
            not modes.S_ISREG(now.st_mode) or (now.st_size, now.st_mtime_ns) == (first.size, first.mtime_ns)
        )


@dataclass
class Journal:
    """All of them, by path."""

    paths: dict[str, Before] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    """What went wrong in writing it, of no path."""

    @property
    def kept(self) -> set[str]:
        """Names of the files that former contents are in."""
        return {os.path.basename(record.kept) for before in self.paths.values() for record in before.contents}


def read_journal(path: Path) -> Journal:
    """Raises OSError where it cannot be read."""
    journal = Journal()
    for record in decoded(path.read_bytes()):
        if not record.path:
            journal.faults.append(record.detail)
            continue
        before = journal.paths.setdefault(record.path, Before(record))
        if record.kind in (LINKED, COPIED):
            before.contents.append(record)
        elif record.kind == LOST:
            before.lost = before.lost or record.detail
    return journal
