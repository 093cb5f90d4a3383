"""A command that stands still: the probes' marks, and the state of its processes at that time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil

from headrace.doctor.attach.process_tree import Descendants
from headrace.doctor.probe.training.standstill import MARK
from headrace.doctor.session.model import Standstill

IDLE_CORES = 0.1
"""Cores that all processes use together, below which none of them works for the thread that waits."""
CORE_BYTES_S = 5e6
"""Reads and writes that count as the work of one core, in bytes per second."""
CHECKED_S = 3.0
WORKING_S = 600.0
"""Time for which they may work until the command counts as standing still nevertheless."""
SHARED_MEMORY = "/dev/shm"


class StandstillMarks:
    """Marks of training threads that stand still, and the work of the command's processes meanwhile."""

    def __init__(self, folder: Path, descendants: Descendants) -> None:
        self._folder, self._descendants = folder, descendants
        self._first_s: float | None = None
        self._since_s = 0.0
        self._done_s: dict[int, float] = {}

    def stands(self) -> bool:
        """Return True once a training thread stands still, and no process of the command works for it."""
        marks, now = list(self._folder.glob(f"{MARK}*")), time.monotonic()
        if not marks:
            self._first_s = None
        elif self._first_s is None:
            self._first_s, self._since_s, self._done_s = now, now, self._work_s(marks)
        elif now - self._since_s >= CHECKED_S:
            done_s = self._work_s(marks)
            worked_s = sum(each - self._done_s.get(pid, 0.0) for pid, each in done_s.items())
            has_idled = worked_s < IDLE_CORES * (now - self._since_s) and done_s.keys() == self._done_s.keys()
            if has_idled or now - self._first_s > WORKING_S:
                return True
            self._since_s, self._done_s = now, done_s
        return False

    def _work_s(self, marks: Iterable[Path]) -> dict[int, float]:
        """Return the work of each process so far, in seconds of a core. Ranks that wait for each other may spin."""
        spinning, found = set[int](), dict[int, float]()
        for mark in marks:
            with suppress(OSError):  # its thread moves again
                spinning.update([int(mark.name.removeprefix(MARK))] if mark.stat().st_size else [])
        for pid in list(self._descendants.live):
            with suppress(psutil.Error, OSError):  # it has ended
                process = psutil.Process(pid)
                used, moved = process.cpu_times(), process.io_counters()
                found[pid] = (moved.read_chars + moved.write_chars) / CORE_BYTES_S
                found[pid] += 0.0 if pid in spinning else used.user + used.system
        return found

    def standstill(self) -> Standstill:
        """Return the state of all processes now."""
        self._descendants.look()
        try:
            free = shutil.disk_usage(SHARED_MEMORY).free
        except OSError:
            free = None
        return Standstill({pid: one.status for pid, one in self._descendants.live.items()}, free)
