"""Readings of the command's processes: CPU time and memory."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from typing import Any

import psutil

from headrace.doctor.machine.host import Rates, Readings
from headrace.system import read_text

DETAILS_SHARE = 0.003
"""Share of one core for readings of memory of all processes."""
DETAILS_CREDIT_S = 0.1
"""Initial seconds, so that the first workers are read soon after their fork."""
DETAILS_INTERVAL_S = 5.0


class ProcessReadings:
    """Figures of one process, each the latest or the largest seen.

    A figure is missing if the kernel does not report it, such as memory and I/O of another user's process. A forked
    worker begins with all its parent's memory, shared: a page becomes its own when either process writes to it, and
    reading a Python object writes to its reference count. `cow_bytes` measures that growth: the decrease of shared
    anonymous memory since the process was first seen, as far as its private memory has grown by as much. It is a lower
    bound, since it misses pages copied before the first reading.
    """

    def __init__(self, process: psutil.Process, started_us: int) -> None:
        self.process = process
        self.detailed_at_s = -math.inf
        self.pss_bytes: int | None = None
        """Current proportional set size; None if not read."""
        self.used_s = 0.0
        """CPU time of the process and its ended children that it waited for."""
        self.figures: dict[str, Any] = {"started": started_us}
        self._first: tuple[int, int] | None = None

    def read(self, now_s: float) -> None:
        """Read the cheap figures. Raises psutil.Error if the process is gone."""
        with self.process.oneshot():
            times = self.process.cpu_times()
            self.used_s = sum(times[:4])
            self.figures |= {"last": round(now_s * 1e6), "cpu_s": times.user + times.system}
            with suppress(psutil.AccessDenied, psutil.ZombieProcess):
                counters = self.process.io_counters()
                self.figures |= {"read_call_bytes": counters.read_chars, "read_bytes": counters.read_bytes}
        words = (read_text(f"/proc/{self.process.pid}/schedstat") or "").split()
        if len(words) == 3 and words != ["0", "0", "0"]:
            self.figures["cpu_wait_s"] = int(words[1]) / 1e9  # of its first thread

    def read_memory(self) -> None:
        """Read memory, for which the kernel walks all pages (10 ms for 500 MB)."""
        with suppress(psutil.Error):
            memory = self.process.memory_full_info()
            self.pss_bytes = memory.pss
            shared = max(memory.rss - memory.shared - memory.uss, 0)
            self._first = self._first or (shared, memory.uss)
            self.figures.setdefault("shared_bytes_first", shared)
            copied = max(min(self._first[0] - shared, memory.uss - self._first[1]), 0)
            for name, value in (
                ("pss_bytes_peak", memory.pss),
                ("private_bytes_peak", memory.uss),
                ("cow_bytes", copied),
            ):
                self.figures[name] = max(value, self.figures.get(name, 0))


class Processes:
    """The doctor's descendants: the command's processes, and orphans of theirs, which the doctor adopts."""

    name = "processes"

    def __init__(self, root: int, rates: Rates) -> None:
        self._doctor = psutil.Process()
        self._others = {one for one in self._doctor.children() if one.pid != root}
        """Children that the doctor had before the command."""
        self._live: dict[psutil.Process, ProcessReadings] = {}
        self._ended: list[ProcessReadings] = []
        self._left_s, self._earned_at_s = DETAILS_CREDIT_S, rates.now_s
        """Seconds that expensive readings may still take, and when they were last increased."""
        self._rates = rates

    def read(self) -> Readings:
        now_s = self._rates.now_s
        descendants = set(self._doctor.children(recursive=True)) - self._others
        for process in set(self._live).difference(descendants):
            self._ended.append(self._live.pop(process))
        for process in descendants:
            with suppress(psutil.Error):
                if process not in self._live:
                    started_us = round((now_s - time.time() + process.create_time()) * 1e6)
                    self._live[process] = ProcessReadings(process, started_us)
                self._live[process].read(now_s)
        self._read_details(now_s)
        known, waited = [*self._ended, *self._live.values()], self._doctor.cpu_times()
        used_s = sum(one.used_s for one in self._live.values()) + waited.children_user + waited.children_system
        pss = [one.pss_bytes for one in self._live.values() if one.pss_bytes is not None]
        # Over all processes ever seen that report the figure, so that the sum only grows.
        read = [one.figures["read_bytes"] for one in known if "read_bytes" in one.figures]
        return {
            "command_pss_bytes": sum(pss) if pss and len(pss) == len(self._live) else None,
            "cpu_cores_command": self._rates.per_second("used_s", used_s if known else None),
            "command_read_bytes_per_s": self._rates.per_second("read_bytes", sum(read) if read else None),
        }

    def facts(self) -> dict[str, Any]:
        return {}

    def figures(self) -> dict[int, dict[str, Any]]:
        """Return figures by pid; of two processes with the same number, the later."""
        return {one.process.pid: dict(one.figures) for one in [*self._ended, *self._live.values()]}

    def _read_details(self, now_s: float) -> None:
        """Read details while their budget lasts: new processes first, then those not read for the longest.

        A reading may overdraw; the next waits until that is earned.
        """
        self._left_s = min(self._left_s + DETAILS_SHARE * (now_s - self._earned_at_s), DETAILS_CREDIT_S)
        self._earned_at_s = now_s
        for one in sorted(self._live.values(), key=lambda one: one.detailed_at_s):
            if self._left_s <= 0 or now_s - one.detailed_at_s < DETAILS_INTERVAL_S:
                return
            began = time.thread_time()
            one.detailed_at_s = now_s
            one.read_memory()
            self._left_s -= time.thread_time() - began
