"""Full garbage collections of a process: how often Python went through all its objects, and how long that took.

A dataset of millions of small objects makes each of them long, and nothing else runs in the process meanwhile. What is
counted is written with other records, since a collection may begin anywhere, also where evidence is being written.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from .evidence_file import Record

OLDEST = 2
"""The generation that a full collection goes through."""


class FullCollections:
    """Count of the full collections since the last record, filled in by Python's own callback."""

    def __init__(self) -> None:
        self._begun: int | None = None
        self._count = self._spent_ns = self._longest_ns = 0

    def watch(self) -> None:
        """Count from now on."""
        gc.callbacks.append(self._called)

    def remove(self) -> None:
        """Count no more."""
        if self._called in gc.callbacks:
            gc.callbacks.remove(self._called)

    def forked(self) -> None:
        """Begin anew in the child of a fork."""
        self._begun = None
        self._count = self._spent_ns = self._longest_ns = 0

    def records(self, now_us: int) -> list[Record]:
        """Return what was counted since the last call, if anything was."""
        if not self._count:
            return []
        count, spent, longest = self._count, self._spent_ns // 1000, self._longest_ns // 1000
        self._count = self._spent_ns = self._longest_ns = 0
        return [("gc", now_us, count, spent, longest)]

    def _called(self, phase: str, info: dict[str, Any]) -> None:
        if info.get("generation") != OLDEST:
            return
        if phase == "start":
            self._begun = time.monotonic_ns()
        elif self._begun is not None:
            took, self._begun = time.monotonic_ns() - self._begun, None
            self._count += 1
            self._spent_ns += took
            self._longest_ns = max(self._longest_ns, took)
