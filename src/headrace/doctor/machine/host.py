"""Readings of the host: cores, memory, pressure, disks, and the container.

Fields of /proc/diskstats: https://docs.kernel.org/admin-guide/iostats.html.
"""

from __future__ import annotations

import os
import platform
import re
from typing import Any

from headrace.doctor.machine.kernel import Kernel, Rates, Readings, ratio, scaled, span, stripped
from headrace.system import ControlGroups, is_whole, pairs, rows, whole

SECTOR_BYTES = 512
"""Unit of diskstats, independent of the disk's own sector size."""
_READS, _READ_SECTORS, _READ_MS, _FIELDS = 0, 2, 3, 11


class Disks:
    """Disks that have ever been used; partitions count for their disk."""

    name = "disks"

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._rates = Rates()

    def read(self, now_s: float) -> Readings:
        row: Readings = {}
        for disk, counters in self._used().items():
            rate = [self._rates.per_second(f"{disk} {field}", value, now_s) for field, value in enumerate(counters)]
            figures = {
                "read_bytes_per_s": scaled(rate[_READ_SECTORS], SECTOR_BYTES),
                "read_latency_us": scaled(ratio(rate[_READ_MS], rate[_READS]), 1000),
            }
            row.update({f"disk_{disk}_{name}": value for name, value in figures.items()})
        return row

    def facts(self) -> dict[str, Any]:
        disks = {}
        for disk in self._used():
            rotational = stripped(self._kernel.text(f"/sys/block/{disk}/queue/rotational"))
            disks[disk] = {"rotational": None if rotational is None else rotational == "1"}
        return {"disks": disks}

    def _used(self) -> dict[str, list[int]]:
        counters = diskstats(self._kernel)
        return {disk: counters[disk] for disk in whole_disks(self._kernel, list(counters)) if any(counters[disk])}


def diskstats(kernel: Kernel) -> dict[str, list[int]]:
    """Return counters by device. Older kernels write fewer fields for partitions, which are skipped."""
    found = {}
    for words in rows(kernel.text("/proc/diskstats")):
        if len(words) >= 3 + _FIELDS and all(map(is_whole, words[3 : 3 + _FIELDS])):
            found[words[2]] = [int(word) for word in words[3 : 3 + _FIELDS]]
    return found


def disk_names(kernel: Kernel) -> dict[str, str]:
    """Return the disk of each disk and partition, by `major:minor` and by name."""
    devices = [words[:3] for words in rows(kernel.text("/proc/diskstats")) if len(words) >= 3]
    disks = whole_disks(kernel, [name for _, _, name in devices])
    found = {}
    for major, minor, name in devices:
        disk = max((disk for disk in disks if name.startswith(disk)), key=len, default=None)
        if disk is not None:
            found[f"{major}:{minor}"] = found[name] = disk
    return found


def whole_disks(kernel: Kernel, devices: list[str]) -> list[str]:
    """Return the devices that are no partition; none if /sys is hidden."""
    blocks = set(kernel.names("/sys/block"))
    return [device for device in devices if device in blocks]


TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)
_KINDS = {"user": (_USER, _NICE), "system": (_SYSTEM, _IRQ, _SOFTIRQ), "waiting": (_IOWAIT,), "stolen": (_STEAL,)}


class Cores:
    """The command's cores, and the container around them."""

    name = "cores"

    def __init__(self, kernel: Kernel, pid: int, cgroups: ControlGroups) -> None:
        self._kernel = kernel
        self._cgroups = cgroups
        self._rates = Rates()
        self._affinity = _affinity(kernel, pid)
        self._container = _container(kernel, pid, cgroups)

    def read(self, now_s: float) -> Readings:
        row = self._times(now_s)
        throttling = self._cgroups.throttling()
        periods = self._rates.per_second("periods", throttling.periods, now_s)
        throttled = self._rates.per_second("throttled", throttling.throttled_periods, now_s)
        row["cpu_throttled_periods_share"] = ratio(throttled, periods)
        row["cpu_throttled_cores"] = self._rates.per_second("throttled_s", throttling.throttled_s, now_s)
        return row

    def facts(self) -> dict[str, Any]:
        quota, allowed = self._cgroups.quota_cores(), len(self._affinity) or None
        model = re.search(r"^model name\s*: (.+)$", self._kernel.text("/proc/cpuinfo") or "", re.M | re.I)
        return {
            "cores": min((cores for cores in (allowed, quota) if cores is not None), default=None),
            "cores_online": len(span(self._kernel.text("/sys/devices/system/cpu/online") or "")) or os.cpu_count(),
            "cores_affinity": allowed,
            "cores_quota": quota,
            "cpu_model": model[1] if model else None,
            "kernel": platform.release(),
            "container": self._container,
        }

    def _times(self, now_s: float) -> Readings:
        """Return core seconds per second, of the allowed cores only.

        Some sandboxes write zeros for all times, so the result is None if no time has passed at all.
        """
        ticks = [0] * 8
        for name, *values in rows(self._kernel.text("/proc/stat")):
            if not name.startswith("cpu") or not is_whole(name[3:]):
                continue
            if not self._affinity or int(name[3:]) in self._affinity:
                for kind, value in enumerate(values[:8]):
                    ticks[kind] += whole(value) or 0
        rates = [self._rates.per_second(f"ticks{kind}", value, now_s) for kind, value in enumerate(ticks)]
        cores = [ratio(rate, TICKS_A_SECOND) if any(rates) else None for rate in rates]
        sums = {name: _sum([cores[kind] for kind in kinds]) for name, kinds in _KINDS.items()}
        busy = _sum([sums["user"], sums["system"]])
        return {"cpu_cores_busy": busy, **{f"cpu_cores_{name}": value for name, value in sums.items()}}


def _affinity(kernel: Kernel, pid: int) -> set[int]:
    for line in (kernel.text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return span(line.partition(":")[2])
    return set()


def _sum(values: list[float | None]) -> float | None:
    """Return the sum of the known values, or None without any: some kernels do not report interrupts."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_CONTAINERS = {"kubepods": "Kubernetes", "docker": "Docker", "libpod": "Podman", "lxc": "LXC", "slurm": "Slurm"}
"""Kinds of container by a part of their control group's path."""


def _container(kernel: Kernel, pid: int, cgroups: ControlGroups) -> str | None:
    """Return the kind of container, or None if none is detected."""
    if "gvisor" in (kernel.text("/proc/version") or "").lower() or kernel.text("/proc/sentry-meminfo") is not None:
        return "gVisor"
    path = f"{kernel.text(f'/proc/{pid}/cgroup') or ''} {cgroups.path or ''}"
    by_path = next((name for part, name in _CONTAINERS.items() if part in path), None)
    if by_path is not None:
        return by_path
    if kernel.text("/run/.containerenv") is not None:
        return "Podman"
    return "Docker" if kernel.text("/.dockerenv") is not None else None


SHM = "/dev/shm"
"""Folder of the workers' batches, and of torch's shared tensors."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MachineMemory:
    name = "memory"

    def __init__(self, kernel: Kernel, cgroups: ControlGroups) -> None:
        self._kernel = kernel
        self._cgroups = cgroups
        self._rates = Rates()
        self._kills = self._count_kills()

    def read(self, now_s: float) -> Readings:
        info = pairs(self._kernel.text("/proc/meminfo"))
        vmstat = pairs(self._kernel.text("/proc/vmstat"))
        shm = self._kernel.space(SHM)
        return {
            "memory_available_bytes": info.get("MemAvailable"),
            "swap_used_bytes": _difference(info.get("SwapTotal"), info.get("SwapFree")),
            "swap_in_bytes_per_s": scaled(self._rates.per_second("in", vmstat.get("pswpin"), now_s), PAGE_BYTES),
            "swap_out_bytes_per_s": scaled(self._rates.per_second("out", vmstat.get("pswpout"), now_s), PAGE_BYTES),
            "shm_used_bytes": None if shm is None else shm.used_bytes,
        }

    def facts(self) -> dict[str, Any]:
        info = pairs(self._kernel.text("/proc/meminfo"))
        shm = self._kernel.space(SHM)
        return {
            "memory_bytes": info.get("MemTotal"),
            "memory_limit_bytes": self._cgroups.memory_limit_bytes(),
            "shm_bytes": None if shm is None else shm.total_bytes,
            "oom_kills": _difference(self._count_kills(), self._kills),
        }

    def _count_kills(self) -> int | None:
        """Return the OOM kills in the control group if available, else on the machine."""
        kills = self._cgroups.oom_kills()
        return kills if kills is not None else pairs(self._kernel.text("/proc/vmstat")).get("oom_kill")


def _difference(more: int | None, less: int | None) -> int | None:
    return None if more is None or less is None else more - less


RESOURCES = ("cpu", "io", "memory")


class Pressure:
    """Pressure in the command's own control group if the kernel reports it, else on the whole machine."""

    name = "pressure"

    def __init__(self, kernel: Kernel, cgroups: ControlGroups) -> None:
        self._kernel = kernel
        self._cgroups = cgroups
        self._rates = Rates()
        self._of = next((of for of in ("cgroup", "machine") if self._text(of, "cpu") is not None), None)

    def read(self, now_s: float) -> Readings:
        row: Readings = {}
        for resource in RESOURCES:
            some = re.search(r"^some .*\btotal=(\d{1,20})$", self._text(self._of, resource) or "", re.M)  # microseconds
            rate = self._rates.per_second(resource, None if some is None else int(some[1]), now_s)
            row[f"pressure_{resource}_some_share"] = ratio(rate, 1e6, most=1.0)
        return row

    def facts(self) -> dict[str, Any]:
        return {"pressure_of": self._of}

    def _text(self, of: str | None, resource: str) -> str | None:
        return self._cgroups.pressure(resource) if of == "cgroup" else self._kernel.text(f"/proc/pressure/{resource}")
