"""How much memory this process may still take."""

from __future__ import annotations

import os
from pathlib import Path


def available_bytes(cgroup: Path = Path("/sys/fs/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """What the machine has free, and no more than the control group's limit (v2, then v1) leaves, as this rank's share
    of the node's (LOCAL_WORLD_SIZE). None where neither can be read."""
    found = [room for room in (_of_machine(meminfo), _of_group(cgroup)) if room is not None]
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "1")
    return min(found) // max(1, int(ranks) if ranks.isdigit() else 1) if found else None


def _of_machine(meminfo: Path) -> int | None:
    try:
        lines = meminfo.read_text().splitlines()
    except OSError:
        return None
    found = [line.split()[1] for line in lines if line.startswith("MemAvailable:")]
    return int(found[0]) * 1024 if found else None


def _of_group(cgroup: Path) -> int | None:
    for limit, used, caches in (
        ("memory.max", "memory.current", "memory.stat"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ):
        try:
            most = (cgroup / limit).read_text().strip()
            if not most.isdigit():  # "max": no limit
                return None
            taken = int((cgroup / used).read_text()) - _dropped_first(cgroup / caches)
        except (OSError, ValueError):
            continue
        return max(0, int(most) - taken)
    return None


def _dropped_first(stat: Path) -> int:
    """The page cache that counts as used and goes when memory is short."""
    lines = (line.split() for line in stat.read_text().splitlines())
    return sum(int(value) for name, value in lines if name == "inactive_file")
