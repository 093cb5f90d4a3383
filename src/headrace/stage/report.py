"""What was staged or removed: counted by the threads that do it, read by the one that shows it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    to: str
    total_files: int = 0
    total_bytes: int = 0
    """Of all files that are to be there."""
    copied: int = 0
    """Files that were written and read back."""
    copied_bytes: int = 0
    """Also of files that are not complete yet."""
    kept: int = 0
    """Files that were there, complete. High after a run that was killed."""
    kept_bytes: int = 0
    verified: int | None = None
    """Of those kept, how many were read and have the bytes that were staged; None: nobody asked for it."""
    verified_bytes: int = 0
    repaired: list[str] = field(default_factory=list)
    """Copies that were not as they were left, and were made anew."""
    gone: int = 0
    """Copies that were removed because their sources are gone."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """What of the sources is not copied, by reason."""
    wall_s: float | None = None

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def count_bytes(self, count: int) -> None:
        with self._lock:
            self.copied_bytes += count

    def count_file(self) -> None:
        with self._lock:
            self.copied += 1

    def count_verified(self, size: int) -> None:
        with self._lock:
            self.verified = (self.verified or 0) + 1
            self.verified_bytes += size

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "to": self.to,
            "files": self.total_files,
            "bytes": self.total_bytes,
            "copied": self.copied,
            "copied_bytes": self.copied_bytes,
            "kept": self.kept,
            "kept_bytes": self.kept_bytes,
            "verified": self.verified,
            "repaired": self.repaired,
            "gone": self.gone,
            "skipped": dict(self.skipped),
            "wall_s": self.wall_s,
        }


@dataclass
class Unstaged:
    to: str
    removed: int = 0
    removed_bytes: int = 0
    left: list[str] = field(default_factory=list)
    """Copies that are not as they were staged, and stay."""

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"to": self.to, "removed": self.removed, "removed_bytes": self.removed_bytes, "left": self.left}
