"""Which doctor has to undo a run."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headrace.doctor.process_stat import parsed


@dataclass(frozen=True)
class Owner:
    """A process, and the folder that it has to leave as it was."""

    pid: int
    started_ticks: int
    root: Path

    @classmethod
    def of_this_process(cls, root: Path) -> Owner:
        return cls(os.getpid(), _started(os.getpid()) or 0, root)

    @classmethod
    def read(cls, path: Path) -> Owner:
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
        return _started(self.pid) == self.started_ticks


def _started(pid: int) -> int | None:
    try:
        stat = parsed(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None
    return None if stat is None or stat.has_ended else stat.started_ticks
