"""The files that a column's bytes lie in, by number."""

from __future__ import annotations

import os
from dataclasses import dataclass

from headrace._core import Paths, leads_out
from headrace.data.strings import StringColumn, Strings
from headrace.errors import OutsideRootError, ReadError


@dataclass(frozen=True, eq=False)
class Files:
    """Names below a folder, without an object each. An empty name is that of no file."""

    root: str
    """Absolute folder that `names` are relative to."""
    names: Strings
    archives: bool
    """Whether each is read again and again, and so worth keeping open: a tar, not a loose image."""
    inside: bool = False
    """Whether a name may not lead out of the root; otherwise an absolute one stands for itself."""

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> bytes:
        """Empty where there is none. Raises OutsideRootError, and ReadError for a name that no file can have."""
        name = self.names.bytes(number)
        if not name:
            return name
        if b"\0" in name:
            raise ReadError(f"no file's name holds a NUL byte, got {os.fsdecode(name)!r}")
        if self.inside and leads_out(name):
            raise OutsideRootError(outside(f"the path {os.fsdecode(name)!r} leads out of {self.root}"))
        return os.path.join(os.fsencode(self.root), name)


def native_paths(files: Files) -> Paths:
    """The same files for the core. Their names have to be in memory."""
    names = files.names
    assert isinstance(names, StringColumn), "names that stay in a file are located batch by batch"
    return Paths(os.fsencode(files.root), names.blob, names.offsets, keep_open=files.archives, inside=files.inside)


def outside(why: str) -> str:
    """What to do about a path that leads out of the root."""
    return f"{why}. Correct it, or open without root=, and absolute paths are taken as they are"
