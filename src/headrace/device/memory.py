"""This process's memory, as Linux tells and limits it."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path

from headrace.errors import UsageError
from headrace.memory.device_memory import says_out_of_memory

STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
CGROUPS = Path("/sys/fs/cgroup")
RESET_PEAK = "5"
"""See proc(5), /proc/pid/clear_refs."""


class CpuMemory:
    """Resident memory of this process, up to what is free on the machine and to the limits of its control group and of
    its address space (RLIMIT_AS).

    Beyond the last a step gets an error. Beyond the others Linux ends the process, so that only the margin protects it.

    What is mapped and never touched, a library's code say, takes of the address space and is not resident. It is no
    part of the capacity; what a step adds to it counts to its peak.
    """

    def __init__(self) -> None:
        self._untouched_bytes = 0

    def capacity_bytes(self) -> int:
        resident = _status_bytes("VmRSS")
        limits = [resident + _bytes_of(Path("/proc/meminfo").read_text(), "MemAvailable")]
        address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if address_space != resource.RLIM_INFINITY:
            limits.append(address_space - _untouched_bytes())
        of_group = (_number(CGROUPS / name) for name in ("memory.max", "memory/memory.limit_in_bytes"))
        return min(limits + [limit for limit in of_group if limit is not None])

    def begin(self) -> None:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc keeps what was freed, and would count it to the next step
            trim(0)
        try:
            CLEAR_REFS.write_text(RESET_PEAK)
        except OSError as error:
            raise UsageError(
                f"expected {CLEAR_REFS} to reset this process's peak of memory, got {error}; budgets for the CPU are "
                "fitted on Linux only; pass hr.Budget(…) instead"
            ) from error
        self._untouched_bytes = _untouched_bytes()

    def peak_bytes(self) -> int:
        limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        added = _untouched_bytes() - self._untouched_bytes if limited else 0
        return _status_bytes("VmHWM") + max(0, added)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return says_out_of_memory(error)


def _status_bytes(name: str) -> int:
    return _bytes_of(STATUS.read_text(), name)


def _untouched_bytes() -> int:
    return _status_bytes("VmSize") - _status_bytes("VmRSS")


def _bytes_of(text: str, name: str) -> int:
    line = next(line for line in text.splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _number(path: Path) -> int | None:
    """None where there is no such limit."""
    try:
        text = path.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdecimal() else None
