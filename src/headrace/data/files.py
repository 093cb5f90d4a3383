"""The files that a column's bytes lie in, by number."""

from __future__ import annotations

import os
from dataclasses import dataclass

from .strings import StringColumn


@dataclass(frozen=True, eq=False)
class Files:
    """Names below a folder, without an object each."""

    root: str
    """Absolute folder that `names` are relative to."""
    names: StringColumn
    archives: bool
    """Whether each is read again and again, and so worth keeping open: a tar, not a loose image."""

    def __len__(self) -> int:
        return len(self.names)

    def path(self, number: int) -> bytes:
        return os.path.join(os.fsencode(self.root), self.names.bytes(number))
