"""Cores and memory that this process may use, within its control groups and its rank's share."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from headrace.system.control_groups import ControlGroups, Text, pairs, read_text

_ROOT = Path("/")
"""Parent folder of proc and sys."""


@dataclass(frozen=True)
class ProcessMemory:
    """Memory of this process, within the machine and all control groups around it."""

    available_bytes: int
    """Bytes that may be taken before anything is swapped out or killed."""
    total_bytes: int
    """Bytes that the machine has, or that the tightest control group allows."""


def memory(root: Path = _ROOT) -> ProcessMemory:
    """Return the minimum over the machine and the control groups. Raises OSError if the kernel does not report it."""
    text = _reader(root)
    info = pairs(text("/proc/meminfo"))
    missing = sorted({"MemAvailable", "MemTotal"} - info.keys())
    if missing:
        raise OSError(f"{root / 'proc/meminfo'}: expected MemAvailable and MemTotal, got no {missing[0]}")
    groups = ControlGroups(text, "self")
    available = [info["MemAvailable"], groups.memory_available_bytes()]
    total = [info["MemTotal"], groups.memory_limit_bytes()]
    return ProcessMemory(*(min(each for each in amounts if each is not None) for amounts in (available, total)))


def core_wait_s(pid: int) -> float | None:
    """Return how long the first thread of a process was ready and waited for a core; None if unknown."""
    words = (read_text(f"/proc/{pid}/schedstat") or "").split()
    return None if len(words) != 3 or words == ["0", "0", "0"] else int(words[1]) / 1e9


def available_bytes(root: Path = _ROOT) -> int | None:
    """Return the memory available to this process; None if the kernel does not report it."""
    try:
        return memory(root).available_bytes
    except OSError:
        return None


def available_to_rank(root: Path = _ROOT) -> int | None:
    """Return this rank's share of the memory available on the node; None if unknown."""
    available = available_bytes(root)
    return None if available is None else available // local_ranks()


def available_cores(root: Path = _ROOT) -> int:
    """Return the cores that affinity and the quotas of all control groups allow; at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = ControlGroups(_reader(root), "self").quota_cores()
    return cores if quota is None else max(1, min(cores, int(quota)))


def default_threads() -> int:
    """Return the available cores, divided by the ranks of this node and by the threads that share them."""
    return max(1, available_cores() // local_ranks() // _sharing.threads)


def share_cores(threads: int) -> None:
    """Declare this thread one of `threads` that share the cores: pools that it starts later get its part of them."""
    _sharing.threads = threads


class _Sharing(threading.local):
    threads = 1


_sharing = _Sharing()


def local_ranks() -> int:
    """Return LOCAL_WORLD_SIZE, as torchrun sets it."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return max(1, int(ranks) if ranks.isdigit() else 1)


def _reader(root: Path) -> Text:
    return read_text if root == _ROOT else lambda path: read_text(f"{root}{path}")
