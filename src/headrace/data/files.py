"""The files that a column's bytes lie in, by number."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .._core import leads_out
from ..errors import OutsideRootError, ReadError
from .strings import Strings


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


def outside(why: str) -> str:
    """What to do about a path that leads out of the root."""
    return f"{why}. Correct it, or open without root=, and absolute paths are taken as they are"
