"""The processes of the command, from their first sight to their end."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from headrace.doctor.machine.budget import Budget
from headrace.doctor.machine.host import disk_names
from headrace.doctor.machine.kernel import Kernel
from headrace.doctor.machine.mounts import Mount, mount_of, mounts
from headrace.doctor.machine.part import Row
from headrace.doctor.machine.processes import Process
from headrace.doctor.machine.rates import Rates, total
from headrace.doctor.machine.tree import Tree, stat

DETAILS_SHARE = 0.003
"""Of one core, for readings of memory and threads, all processes together."""
DETAILS_CREDIT_S = 0.1
"""So that the first workers are seen soon after their fork."""
DETAILS_INTERVAL_S = 5.0
MOST_PROCESSES = 1024
"""Beyond this, those that have ended and used the least CPU time are let go; their sums stay."""
MOST_FILES = 4096
"""Files that are counted; one that comes later is none of those that are open all the time."""
TOLD_FILES = 64
GROWING = {
    "command_read_call_bytes_per_s": "read_call_bytes",
    "command_read_bytes_per_s": "read_bytes",
}
"""Columns that are the growth a second of a figure, summed over all processes."""


class Processes:
    name = "processes"

    def __init__(self, kernel: Kernel, root: int, now_s: float, started_us: Callable[[int], int]) -> None:
        """`started_us` puts ticks since the machine began on the session's clock."""
        self._kernel = kernel
        self._tree = Tree(kernel, root)
        self._started_us = started_us
        self._mounts = mounts(kernel, root)
        self._files: Counter[Mount] = Counter()
        self._paths: Counter[str] = Counter()
        self._live: dict[int, Process] = {}
        self._ended: list[Process] = []
        self._let_go = 0
        self._let_go_sums: Counter[str] = Counter()
        self._ended_s = 0.0
        """CPU time of those that ended as children of none of them."""
        self._budget = Budget(DETAILS_SHARE, DETAILS_CREDIT_S, now_s)
        self._rates = Rates()

    def read(self, now_s: float) -> Row:
        pids = self._tree.scan()
        for pid in pids | set(self._live):
            self._look(pid, pid in pids, now_s)
        self._read_details(now_s)
        return {
            "command_processes": len(self._live),
            "command_threads": total([process.threads for process in self._live.values()]),
            "command_pss_bytes": total([process.pss_bytes for process in self._live.values()]),
            "cpu_cores_command": self._rates.per_second("used_s", self._used(), now_s),
            **{column: self._rates.per_second(column, self._sum(figure), now_s) for column, figure in GROWING.items()},
        }

    def facts(self) -> dict[str, Any]:
        numbers = disk_names(self._kernel)
        return {
            "mounts": [_describe(mount, files, numbers) for mount, files in self._files.most_common()],
            "files": [{"path": path, "seen": seen} for path, seen in self._paths.most_common(TOLD_FILES)],
            "processes_let_go": self._let_go,
        }

    def figures(self) -> dict[int, dict[str, Any]]:
        """By pid; of two that had the same number, the later."""
        processes = [*self._ended, *self._live.values()]
        return {p.pid: {"started": self._started_us(p.started_ticks), **p.figures} for p in processes}

    @property
    def hold_this_process(self) -> bool:
        """Whether the command is (an ancestor of) the process that runs this, as in a notebook."""
        return os.getpid() in self._live

    def _look(self, pid: int, is_listed: bool, now_s: float) -> None:
        seen = stat(self._kernel, pid) if is_listed else None
        process = self._live.get(pid)
        if process is not None and (seen is None or not process.is_it(seen)):
            self._end(pid)
            process = None
        if seen is None:
            return
        if process is None and not seen.has_ended:
            process = self._live[pid] = Process(self._kernel, pid, seen)
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
        if len(self._ended) > MOST_PROCESSES:
            least = min(self._ended, key=lambda process: process.figures["cpu_s"])
            self._ended.remove(least)
            self._let_go += 1
            self._let_go_sums.update({name: least.figures[name] or 0 for name in GROWING.values()})

    def _read_details(self, now_s: float) -> None:
        """Of those unread the longest first, new ones before them, while the budget lasts."""
        self._budget.earn(now_s)
        for process in sorted(self._live.values(), key=lambda process: process.detailed_at_s):
            if not self._budget.is_left or now_s - process.detailed_at_s < DETAILS_INTERVAL_S:
                return
            began = time.thread_time()
            process.read_details(now_s)
            paths = process.read_files()
            mounted = [mount_of(path, self._mounts) for path in paths]
            self._files.update(mount for mount in mounted if mount is not None)
            self._paths.update(path for path in paths if path in self._paths or len(self._paths) < MOST_FILES)
            self._budget.spend(time.thread_time() - began)

    def _used(self) -> float | None:
        """CPU time of the command so far."""
        if not self._live and not self._ended:
            return None
        return sum(process.used_s for process in self._live.values()) + self._ended_s

    def _sum(self, figure: str) -> float | None:
        """Of all that ever were, so that it only grows; of those that tell."""
        told = [p.figures[figure] for p in (*self._ended, *self._live.values()) if p.figures[figure] is not None]
        return sum(told) + self._let_go_sums[figure] if told else None


def _describe(mount: Mount, files: int, disks: dict[str, str]) -> dict[str, Any]:
    """File systems such as btrfs have a number of their own; the device is only in their source's name then."""
    disk = disks.get(mount.number) or disks.get(mount.source.removeprefix("/dev/"))
    return {
        "path": mount.point,
        "kind": mount.kind,
        "source": mount.source,
        "network": mount.is_network,
        "disk": disk,
        "files_seen": files,
    }
