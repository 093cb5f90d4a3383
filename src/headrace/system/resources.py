"""Cores and memory that this process may use, within its control groups and its rank's share."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# -- from available_memory.py: How much memory is left to this process: of the machine, and of its control groups.


_UNLIMITED_BYTES = 1 << 60
"""Version 1 of control groups writes "no limit" as the largest multiple of a page."""


@dataclass(frozen=True)
class ProcessMemory:
    available_bytes: int
    """That may be taken before anything is swapped out or killed."""
    total_bytes: int
    """That there is, or that the tightest control group allows."""


def memory(root: Path = Path("/")) -> ProcessMemory:
    """The least of the machine and of the control groups (v2 and v1) around this process. `root`: where proc and sys
    are. Raises OSError where the kernel does not tell."""
    info = _pairs((root / "proc/meminfo").read_text().replace(":", " "))
    missing = sorted({"MemAvailable", "MemTotal"} - info.keys())
    if missing:
        raise OSError(f"{root / 'proc/meminfo'}: expected MemAvailable and MemTotal, got no {missing[0]}")
    machine = ProcessMemory(info["MemAvailable"] << 10, info["MemTotal"] << 10)
    found = [machine, *(group for folder in _groups(root) if (group := _group(folder)) is not None)]
    return ProcessMemory(min(one.available_bytes for one in found), min(one.total_bytes for one in found))


def available_bytes(root: Path = Path("/")) -> int | None:
    """None where the kernel does not tell."""
    try:
        return memory(root).available_bytes
    except OSError:
        return None


def available_to_rank(root: Path = Path("/")) -> int | None:
    """This rank's share of what is available on the node (LOCAL_WORLD_SIZE)."""
    available, ranks = available_bytes(root), os.environ.get("LOCAL_WORLD_SIZE", "1")
    return None if available is None else available // max(1, int(ranks) if ranks.isdigit() else 1)


def _groups(root: Path) -> Iterator[Path]:
    """Folders of the groups that this process is in, each with those above it; a limit binds all below."""
    for line in (root / "proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in ("", "memory"):
            top = root / "sys/fs/cgroup" / controllers
            below = top / path.lstrip("/")
            yield from (below, *(folder for folder in below.parents if folder.is_relative_to(top)))


def _group(folder: Path) -> ProcessMemory | None:
    """None where it has no limit, or cannot be seen, as from inside a container."""
    limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
    used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _UNLIMITED_BYTES:
        return None
    return ProcessMemory(max(0, limit - used + _droppable(folder)), limit)


def _droppable(folder: Path) -> int:
    """File cache that the kernel gives back at need."""
    try:
        stat = _pairs((folder / "memory.stat").read_text())
    except OSError:
        return 0
    return stat.get("total_inactive_file", stat.get("inactive_file", 0))


def _number(*files: Path) -> int | None:
    for file in files:
        try:
            text = file.read_text().strip()
        except OSError:
            continue
        return int(text) if text.isdigit() else None
    return None


def _pairs(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) >= 2 and row[1].isdigit()}


# -- from cores.py: How many cores this process may use.


def available_cores(cgroup: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores that affinity and the cgroup's quota (v2, then v1) allow; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = _quota(cgroup)
    return cores if quota is None else max(1, min(cores, int(quota)))


def default_threads() -> int:
    """The cores available, shared by the ranks of this node (LOCAL_WORLD_SIZE, as torchrun sets it), and by the threads
    beside which this one works (`share_cores`)."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, available_cores() // max(1, int(ranks) if ranks.isdigit() else 1) // _sharing.threads)


def share_cores(threads: int) -> None:
    """From now on, this thread is one of so many that work side by side: what it starts has its share of the cores."""
    _sharing.threads = threads


class _Sharing(threading.local):
    threads = 1


_sharing = _Sharing()


def _quota(cgroup: Path) -> float | None:
    try:
        most, period = (cgroup / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            most = (cgroup / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not most.isdigit() or not period.isdigit() or int(period) == 0:
        return None  # "max", or -1: no quota
    return int(most) / int(period)
