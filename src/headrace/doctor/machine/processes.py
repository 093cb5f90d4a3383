"""Readings of the command's processes: CPU time, memory and open files."""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.doctor.attach import ProcessStat, parse_process_stat
from headrace.doctor.machine.host import TICKS_A_SECOND, disk_names
from headrace.doctor.machine.kernel import Kernel, Rates, Readings, mount_of, total
from headrace.system import Mount, is_whole, mounts, pairs

NO_FILES = ("/dev/", "/proc/", "/sys/", "/memfd:")


class ProcessReadings:
    """Figures of one process, each the latest or the largest seen.

    None if the kernel does not report a figure, such as memory and I/O of another user's process.
    """

    def __init__(self, kernel: Kernel, pid: int, seen: ProcessStat) -> None:
        self.pid = pid
        self.started_ticks = seen.started_ticks
        self.detailed_at_s = -math.inf
        self.of_children_s = 0.0
        """CPU time of its ended children, as last seen of each."""
        self._before_s = seen.waited_ticks / TICKS_A_SECOND
        self._own_s = self._waited_s = 0.0
        self._kernel = kernel
        self.memory = ProcessMemoryReadings()
        self.figures: dict[str, Any] = {"parent": seen.parent, **self.memory.figures}

    def read(self, seen: ProcessStat, now_s: float) -> None:
        """Read the cheap figures: three small files, none of which delays the process.

        A zombie, which has ended and is not waited for yet, still reports its times only.
        """
        io = pairs(self._text("io"))
        schedstat = (self._text("schedstat") or "").split()
        counts = len(schedstat) == 3 and any(word != "0" for word in schedstat)
        self._own_s = (seen.user_ticks + seen.system_ticks) / TICKS_A_SECOND
        self._waited_s = seen.waited_ticks / TICKS_A_SECOND
        told = {
            "name": seen.name,
            "last": round(now_s * 1e6),
            "cpu_s": self._own_s,
            "cpu_wait_s": int(schedstat[1]) / 1e9 if counts else None,  # of its first thread
            "read_call_bytes": io.get("rchar"),
            "read_bytes": io.get("read_bytes"),
        }
        for name, value in told.items():
            if value is not None or name not in self.figures:  # unreported figures keep their last value
                self.figures[name] = value

    def read_details(self, now_s: float) -> None:
        """Read the expensive figures, for which the kernel walks all pages (10 ms for 500 MB)."""
        self.detailed_at_s = now_s
        self.memory.read(pairs(self._text("smaps_rollup")))
        self.figures.update(self.memory.figures)

    def read_files(self) -> list[str]:
        """Return the paths of files open for reading, without pipes, sockets, devices and logs."""
        found = []
        for descriptor in self._kernel.names(f"/proc/{self.pid}/fd"):
            path = self._kernel.link(f"/proc/{self.pid}/fd/{descriptor}") or ""
            if path.startswith("/") and not path.startswith(NO_FILES) and self._is_read(descriptor):
                found.append(path)
        return found

    @property
    def used_s(self) -> float:
        """CPU time of the process and its ended children.

        Time that children used after they were last seen is included once the process has waited for them.
        """
        return self._own_s + max(self._waited_s, self._before_s + self.of_children_s)

    def _is_read(self, descriptor: str) -> bool:
        """Return True if the open flags, in fdinfo's last octal digit, allow reading, or are unknown."""
        flags = pairs(self._text(f"fdinfo/{descriptor}")).get("flags", os.O_RDONLY)
        return flags % 10 & os.O_ACCMODE != os.O_WRONLY

    def _text(self, file: str) -> str | None:
        return self._kernel.text(f"/proc/{self.pid}/{file}")


class ProcessMemoryReadings:
    """Memory of a process, from /proc/PID/smaps_rollup.

    A forked worker begins with all its parent's memory, shared: a page becomes its own when either process writes to
    it, and reading a Python object writes to its reference count. `cow_bytes` measures that growth: the decrease of
    shared anonymous memory since the process was first seen, as far as its private memory has grown by as much. (New
    memory grows only the private part; freeing inherited memory shrinks only the shared part.) It is a lower bound,
    since it misses pages copied before the first reading.
    """

    def __init__(self) -> None:
        self.pss_bytes: int | None = None
        """Current proportional set size; None if not read."""
        self._first: tuple[int, int] | None = None
        names = ("pss_bytes_peak", "private_bytes_peak", "shared_bytes_first", "cow_bytes")
        self.figures: dict[str, int | None] = dict.fromkeys(names)

    def read(self, rollup: dict[str, int]) -> None:
        self.pss_bytes = rollup.get("Pss", self.pss_bytes)
        private = rollup.get("Private_Dirty")
        for name, value in (("pss_bytes_peak", rollup.get("Pss")), ("private_bytes_peak", private)):
            if value is not None:
                self.figures[name] = max(value, self.figures[name] or 0)
        if private is None or "Anonymous" not in rollup:
            return
        shared = max(rollup["Anonymous"] - private, 0)
        if self._first is None:
            self._first = (shared, private)
            self.figures["shared_bytes_first"] = shared
            return
        cow = min(self._first[0] - shared, private - self._first[1])
        self.figures["cow_bytes"] = max(cow, self.figures["cow_bytes"] or 0)


def process_stat(kernel: Kernel, pid: int) -> ProcessStat | None:
    """Return a process's stat line; None if the process is gone or hidden, or the line is malformed."""
    return parse_process_stat(kernel.text(f"/proc/{pid}/stat") or "")


class ProcessTree:
    """The processes below a root, and those that left it.

    A child whose parent is gone is recognised by the process group or session that a known process leads, or by its new
    parent: this process adopts the command's orphans. Each process is checked once, so a machine with thousands costs
    little more than listing them; a foreign process cannot become ours.
    """

    def __init__(self, kernel: Kernel, root: int) -> None:
        self._kernel = kernel
        self._root = root
        self._ours = {root}
        self._foreign: set[int] = set()

    def scan(self) -> set[int]:
        """Return the pids that belong to the tree and are listed now.

        An unlisted process is forgotten, since its number may be reused, but only after its orphans have been found
        through it.
        """
        listed = {int(name) for name in self._kernel.names("/proc") if is_whole(name)}
        self._foreign &= listed
        new = {pid: seen for pid in listed - self._ours - self._foreign if (seen := process_stat(self._kernel, pid))}
        while found := {pid for pid, seen in new.items() if self._belongs(seen)}:
            self._ours |= found
            new = {pid: seen for pid, seen in new.items() if pid not in found}
        self._foreign |= set(new)
        self._ours &= listed | {self._root}
        return self._ours & listed

    def _belongs(self, seen: ProcessStat) -> bool:
        is_adopted = seen.parent == os.getpid() and seen.group != os.getpgrp()
        return is_adopted or bool({seen.parent, seen.group, seen.session} & self._ours)


class ReadingBudget:
    """Time budget for expensive readings: it earns `share` of elapsed time, up to `most_s`.

    The cost of a reading is subtracted from `left_s`. A reading may overdraw; the next waits until that is earned.
    """

    def __init__(self, share: float, most_s: float, now_s: float) -> None:
        self._share = share
        self._most_s = self.left_s = most_s
        self._earned_at_s = now_s

    def earn(self, now_s: float) -> None:
        self.left_s = min(self.left_s + self._share * (now_s - self._earned_at_s), self._most_s)
        self._earned_at_s = now_s


DETAILS_SHARE = 0.003
"""Share of one core for readings of memory of all processes."""
DETAILS_CREDIT_S = 0.1
"""Initial seconds, so that the first workers are read soon after their fork."""
DETAILS_INTERVAL_S = 5.0
MOST_FILES = 4096
"""Maximum number of counted files. Files seen later are not open all the time."""
TOLD_FILES = 64
GROWING = {
    "command_read_call_bytes_per_s": "read_call_bytes",
    "command_read_bytes_per_s": "read_bytes",
}
"""Columns that are the growth per second of a figure, summed over all processes."""


class Processes:
    name = "processes"

    def __init__(self, kernel: Kernel, root: int, now_s: float, started_us: Callable[[int], int]) -> None:
        """Begin at `root`. `started_us` converts ticks since boot to the session's clock."""
        self._kernel = kernel
        self._tree = ProcessTree(kernel, root)
        self._started_us = started_us
        self._mounts = mounts(kernel.text, root)
        self._files: Counter[Mount] = Counter()
        self._paths: Counter[str] = Counter()
        self._live: dict[int, ProcessReadings] = {}
        self._ended: list[ProcessReadings] = []
        self._ended_s = 0.0
        """CPU time of ended processes that were children of none of the known ones."""
        self._budget = ReadingBudget(DETAILS_SHARE, DETAILS_CREDIT_S, now_s)
        self._rates = Rates()

    def read(self, now_s: float) -> Readings:
        pids = self._tree.scan()
        for pid in pids | set(self._live):
            self._look(pid, pid in pids, now_s)
        self._read_details(now_s)
        live, known = self._live.values(), [*self._ended, *self._live.values()]
        used_s = sum(process.used_s for process in live) + self._ended_s if known else None
        row = {
            "command_processes": len(self._live),
            "command_pss_bytes": total([process.memory.pss_bytes for process in live]),
            "cpu_cores_command": self._rates.per_second("used_s", used_s, now_s),
        }
        for column, figure in GROWING.items():
            # Over all processes ever seen that report the figure, so that the sum only grows.
            told = [process.figures[figure] for process in known if process.figures[figure] is not None]
            row[column] = self._rates.per_second(column, sum(told) if told else None, now_s)
        return row

    def facts(self) -> dict[str, Any]:
        disks = disk_names(self._kernel)
        told = []
        for mount, files in self._files.most_common():
            # btrfs and others have their own device number; then only the source's name identifies the device.
            disk = disks.get(mount.number) or disks.get(mount.source.removeprefix("/dev/"))
            of_mount = {"path": mount.point, "kind": mount.kind, "source": mount.source, "network": mount.is_network}
            told.append({**of_mount, "disk": disk, "files_seen": files})
        return {
            "mounts": told,
            "files": [{"path": path, "seen": seen} for path, seen in self._paths.most_common(TOLD_FILES)],
        }

    def figures(self) -> dict[int, dict[str, Any]]:
        """Return figures by pid; of two processes with the same number, the later."""
        processes = [*self._ended, *self._live.values()]
        return {p.pid: {"started": self._started_us(p.started_ticks), **p.figures} for p in processes}

    @property
    def hold_this_process(self) -> bool:
        """True if the tree includes the process that runs this code, as in a notebook."""
        return os.getpid() in self._live

    def _look(self, pid: int, is_listed: bool, now_s: float) -> None:
        seen = process_stat(self._kernel, pid) if is_listed else None
        process = self._live.get(pid)
        if process is not None and (seen is None or seen.started_ticks != process.started_ticks):
            self._end(pid)
            process = None
        if seen is None:
            return
        if process is None and not seen.has_ended:
            process = self._live[pid] = ProcessReadings(self._kernel, pid, seen)
        if process is not None:
            process.read(seen, now_s)
            if seen.has_ended:
                self._end(pid)

    def _end(self, pid: int) -> None:
        process = self._live.pop(pid)
        self._ended.append(process)
        parent = self._live.get(process.figures["parent"])
        if parent is None:
            self._ended_s += process.used_s
        else:
            parent.of_children_s += process.used_s

    def _read_details(self, now_s: float) -> None:
        """Read details while the budget lasts: new processes first, then those not read for the longest."""
        self._budget.earn(now_s)
        for process in sorted(self._live.values(), key=lambda process: process.detailed_at_s):
            if self._budget.left_s <= 0 or now_s - process.detailed_at_s < DETAILS_INTERVAL_S:
                return
            began = time.thread_time()
            process.read_details(now_s)
            paths = process.read_files()
            mounted = [mount_of(path, self._mounts) for path in paths]
            self._files.update(mount for mount in mounted if mount is not None)
            self._paths.update(path for path in paths if path in self._paths or len(self._paths) < MOST_FILES)
            self._budget.left_s -= time.thread_time() - began
