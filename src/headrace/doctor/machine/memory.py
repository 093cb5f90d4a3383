"""The memory of the machine and of the control group, swap, and the memory that processes share."""

from __future__ import annotations

import os
from typing import Any

from headrace.doctor.machine.control_groups import Cgroups
from headrace.doctor.machine.kernel import Kernel, pairs
from headrace.doctor.machine.part import Row
from headrace.doctor.machine.rates import Rates

SHM = "/dev/shm"
"""Where workers put their batches, and torch its shared tensors."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Memory:
    name = "memory"

    def __init__(self, kernel: Kernel, cgroups: Cgroups) -> None:
        self._kernel = kernel
        self._cgroups = cgroups
        self._rates = Rates()
        self._kills = self._count_kills()

    def read(self, now_s: float) -> Row:
        info = pairs(self._kernel.text("/proc/meminfo"))
        vmstat = pairs(self._kernel.text("/proc/vmstat"))
        shm = self._kernel.space(SHM)
        return {
            "memory_available_bytes": info.get("MemAvailable"),
            "page_cache_bytes": info.get("Cached"),
            "swap_used_bytes": _difference(info.get("SwapTotal"), info.get("SwapFree")),
            "swap_in_bytes_per_s": self._pages("pswpin", vmstat, now_s),
            "swap_out_bytes_per_s": self._pages("pswpout", vmstat, now_s),
            "cgroup_memory_used_bytes": self._cgroups.memory_used_bytes(),
            "shm_used_bytes": None if shm is None else shm.used_bytes,
        }

    def facts(self) -> dict[str, Any]:
        info = pairs(self._kernel.text("/proc/meminfo"))
        shm = self._kernel.space(SHM)
        return {
            "memory_bytes": info.get("MemTotal"),
            "memory_limit_bytes": self._cgroups.memory_limit_bytes(),
            "swap_bytes": info.get("SwapTotal"),
            "shm_bytes": None if shm is None else shm.total_bytes,
            "huge_pages": info.get("HugePages_Total"),
            "huge_page_bytes": info.get("Hugepagesize"),
            "oom_kills": _difference(self._count_kills(), self._kills),
        }

    def _count_kills(self) -> int | None:
        """Of the control group where it counts them, else of the machine."""
        kills = self._cgroups.oom_kills()
        return kills if kills is not None else pairs(self._kernel.text("/proc/vmstat")).get("oom_kill")

    def _pages(self, name: str, vmstat: dict[str, int], now_s: float) -> float | None:
        pages = self._rates.per_second(name, vmstat.get(name), now_s)
        return None if pages is None else pages * PAGE_BYTES


def _difference(more: int | None, less: int | None) -> int | None:
    return None if more is None or less is None else more - less
