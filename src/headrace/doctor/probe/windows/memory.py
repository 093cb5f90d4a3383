"""How much memory may be used for keeping batches."""

from __future__ import annotations

import os
from typing import Callable

MOST_BYTES = 512 << 20
SHARE = 0.1
"""Of what is free on the machine, or within the limit of the container, among the ranks of the machine."""


def room_bytes() -> int:
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    free = min([room for room in (_told(_free), _told(_below_limit)) if room is not None], default=0)
    return min(MOST_BYTES, int(free * SHARE / (int(ranks) if ranks.isdigit() and int(ranks) else 1)))


def _told(ask: Callable[[], int | None]) -> int | None:
    """None where the kernel does not tell."""
    try:
        return ask()
    except (OSError, ValueError, IndexError):
        return None


def _free() -> int | None:
    with open("/proc/meminfo", encoding="ascii") as file:
        lines = dict(line.split(":", 1) for line in file)
    return int(lines["MemAvailable"].split()[0]) << 10 if "MemAvailable" in lines else None


def _below_limit() -> int | None:
    """Of the control group that the process is in, as a container sees its own."""
    limit = _text("/sys/fs/cgroup/memory.max")
    return None if limit == "max" else max(0, int(limit) - int(_text("/sys/fs/cgroup/memory.current")))


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read().strip()
