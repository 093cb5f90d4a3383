"""What was done with one archive: counted by the threads that do it, read by the one that shows it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from headrace.tools.unpack.plan import Refusal
from headrace.tools.unpack.target import Placed


@dataclass
class Report:
    archive: str
    total_files: int | None = None
    """Files that there will be; None: not known until the end, as the archive is compressed as a whole."""
    total_bytes: int | None = None
    """Of these; before an archive is opened its own size."""
    made: int = 0
    """Files written."""
    made_bytes: int = 0
    kept: int = 0
    """Files that were there, complete. High after a run that was killed."""
    kept_bytes: int = 0
    verified: int | None = None
    """Files whose bytes were compared with the archive's; None: nobody asked for it."""
    verified_bytes: int = 0
    folders: int = 0
    """That the archive names."""
    links: int = 0
    replaced: list[str] = field(default_factory=list)
    """Names whose path a later member makes."""
    refused: list[Refusal] = field(default_factory=list)
    made_s: float | None = None
    """Until all was in its place. None: it is not yet."""
    wall_s: float | None = None
    """With the verification. None: it is not done yet."""

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    @property
    def seen_bytes(self) -> int:
        """For progress: of files that are done with, twice where they were compared, too."""
        return self.made_bytes + self.kept_bytes + self.verified_bytes

    def count(self, placed: Placed, size: int) -> None:
        with self._lock:
            if placed is Placed.MADE:
                self.made += 1
                self.made_bytes += size
            else:
                self.kept += 1
                self.kept_bytes += size

    def count_verified(self, size: int) -> None:
        with self._lock:
            self.verified = (self.verified or 0) + 1
            self.verified_bytes += size

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around all that is done with the archive."""
        self._begin = time.perf_counter()
        yield
        self.wall_s = time.perf_counter() - self._begin

    def end_making(self) -> None:
        """All is in its place."""
        self.made_s = time.perf_counter() - self._begin

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return {
            "archive": self.archive,
            "files": self.made + self.kept,
            "made": self.made,
            "made_bytes": self.made_bytes,
            "kept": self.kept,
            "kept_bytes": self.kept_bytes,
            "verified": self.verified,
            "folders": self.folders,
            "links": self.links,
            "replaced": self.replaced,
            "refused": [refusal._asdict() for refusal in self.refused],
            "made_s": self.made_s,
            "wall_s": self.wall_s,
        }
