"""How many cores this process may use."""

from __future__ import annotations

import os
import threading
from pathlib import Path


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
