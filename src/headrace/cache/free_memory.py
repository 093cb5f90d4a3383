"""How much RAM a cache may take without driving anything out."""

from __future__ import annotations

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
MEMINFO = Path("/proc/meminfo")


def free_memory_bytes(cgroup: Path = CGROUP, meminfo: Path = MEMINFO) -> int | None:
    """What the machine has available, or the container's cgroup (v2, then v1) if that is less. None: neither says."""
    free = [each for each in (_of_machine(meminfo), _of_cgroup(cgroup)) if each is not None]
    return min(free) if free else None


def _of_machine(meminfo: Path) -> int | None:
    return _named(meminfo, "MemAvailable:", 1024)


def _of_cgroup(cgroup: Path) -> int | None:
    for limit, used, stat, reclaimable in (
        ("memory.max", "memory.current", "memory.stat", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat", "total_inactive_file"),
    ):
        most, taken = _number(cgroup / limit), _number(cgroup / used)
        if most is not None and taken is not None:
            return max(0, most - taken + (_named(cgroup / stat, reclaimable, 1) or 0))
    return None


def _number(path: Path) -> int | None:
    """None for "max", or where there is none."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _named(path: Path, name: str, unit_bytes: int) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdigit():
            return int(words[1]) * unit_bytes
    return None
