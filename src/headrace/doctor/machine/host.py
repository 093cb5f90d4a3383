"""Readings of the host: cores, memory, pressure, disks and GPUs, by psutil, control groups and NVML (nvidia-ml-py).

Nothing is ever set or reset.
"""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Callable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import Any, Protocol

import psutil

from headrace.system import ControlGroups, pairs, read_text


class Rates:
    """Growth of counters per second, since the last reading of each.

    The first reading of a counter gives None, and so does a decrease (the counter restarted) or an unknown value.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        """Time of the present reading, which the sampler sets before all parts are read."""
        self._last: dict[str, tuple[float, float]] = {}

    def per_second(self, name: str, value: float | None) -> float | None:
        now_s, last = self.now_s, self._last.pop(name, None)
        if value is None:
            return None
        self._last[name] = (now_s, value)
        if last is None or now_s <= last[0] or value < last[1]:
            return None
        return (value - last[1]) / (now_s - last[0])


def ratio(part: float | None, whole: float | None, *, most: float = inf) -> float | None:
    """Return the quotient, at most `most`; None if either value is unknown, or the divisor is 0."""
    return None if part is None or not whole else min(part / whole, most)


Readings = dict[str, float | None]
"""One reading, by column. None if not measured."""


class MachinePart(Protocol):
    """Sampled part of the machine. Its construction, when sampling begins, reads what may be gone at the end."""

    name: str

    def read(self) -> Readings:
        """Return one reading. Columns may appear late or be missing; rates are since the previous reading."""

    def facts(self) -> dict[str, Any]:
        """Return constants, and totals over the run. Called once, when sampling ends."""


class Cores:
    """The command's cores, and the container around them."""

    name = "cores"

    def __init__(self, pid: int, cgroups: ControlGroups, rates: Rates) -> None:
        self._cgroups = cgroups
        self._rates = rates
        self._affinity: set[int] = set()
        with suppress(psutil.Error):
            self._affinity = set(psutil.Process(pid).cpu_affinity())

    def read(self) -> Readings:
        row = self._times()
        throttling = self._cgroups.throttling()
        periods = self._rates.per_second("periods", throttling.periods)
        throttled = self._rates.per_second("throttled", throttling.throttled_periods)
        row["cpu_throttled_periods_share"] = ratio(throttled, periods)
        row["cpu_throttled_cores"] = self._rates.per_second("throttled_s", throttling.throttled_s)
        return row

    def facts(self) -> dict[str, Any]:
        quota, allowed = self._cgroups.quota_cores(), len(self._affinity) or None
        model = re.search(r"^model name\s*: (.+)$", read_text("/proc/cpuinfo") or "", re.M | re.I)
        return {
            "cores": min((cores for cores in (allowed, quota) if cores is not None), default=None),
            "cores_online": psutil.cpu_count(),
            "cores_quota": quota,
            "cpu_model": model[1] if model else None,
            "kernel": platform.release(),
        }

    def _times(self) -> Readings:
        """Return core seconds per second, of the allowed cores only.

        Some sandboxes count no time at all, so the result is None if none has passed.
        """
        every = psutil.cpu_times(percpu=True)
        times = [one for number, one in enumerate(every) if number in self._affinity] or every
        seconds = {
            "busy": sum(one.user + one.nice + one.system + one.irq + one.softirq for one in times),
            "waiting": sum(one.iowait for one in times),
            "stolen": sum(one.steal for one in times),
        }
        passed = self._rates.per_second("all", sum(sum(one[:8]) for one in times))
        rates = {name: self._rates.per_second(name, value) for name, value in seconds.items()}
        return {f"cpu_cores_{name}": rate if passed else None for name, rate in rates.items()}


SHM = "/dev/shm"
"""Folder of the workers' batches, and of torch's shared tensors."""


class MachineMemory:
    name = "memory"

    def __init__(self, cgroups: ControlGroups, rates: Rates) -> None:
        self._cgroups = cgroups
        self._rates = rates
        self._kills = self._count_kills()

    def read(self) -> Readings:
        swap = psutil.swap_memory()
        return {
            "memory_available_bytes": psutil.virtual_memory().available,
            "swap_used_bytes": swap.used,
            "swap_in_bytes_per_s": self._rates.per_second("in", swap.sin),
            "swap_out_bytes_per_s": self._rates.per_second("out", swap.sout),
            "shm_used_bytes": _shm("used"),
        }

    def facts(self) -> dict[str, Any]:
        kills = self._count_kills()
        return {
            "memory_bytes": psutil.virtual_memory().total,
            "memory_limit_bytes": self._cgroups.memory_limit_bytes(),
            "shm_bytes": _shm("total"),
            "oom_kills": None if kills is None or self._kills is None else kills - self._kills,
        }

    def _count_kills(self) -> int | None:
        """Return the OOM kills in the control group if available, else on the machine."""
        kills = self._cgroups.oom_kills()
        return kills if kills is not None else pairs(read_text("/proc/vmstat")).get("oom_kill")


def _shm(what: str) -> int | None:
    try:
        return int(getattr(psutil.disk_usage(SHM), what))
    except OSError:
        return None


class Pressure:
    """Pressure in the command's own control group if the kernel reports it, else on the whole machine."""

    name = "pressure"

    def __init__(self, cgroups: ControlGroups, rates: Rates) -> None:
        self._cgroups = cgroups
        self._rates = rates

    def read(self) -> Readings:
        row: Readings = {}
        for what in ("cpu", "io", "memory"):
            text = self._cgroups.pressure(what) or read_text(f"/proc/pressure/{what}")
            some = re.search(r"^some .*\btotal=(\d{1,20})$", text or "", re.M)  # microseconds
            rate = self._rates.per_second(f"pressure {what}", None if some is None else int(some[1]))
            row[f"pressure_{what}_some_share"] = ratio(rate, 1e6, most=1.0)
        return row

    def facts(self) -> dict[str, Any]:
        return {}


class Disks:
    """Disks that have ever been read; partitions count for their disk."""

    name = "disks"

    def __init__(self, rates: Rates) -> None:
        self._rates = rates

    def read(self) -> Readings:
        row: Readings = {}
        for disk, counters in self._used().items():
            read, requests, ms = (
                self._rates.per_second(f"{disk} {name}", getattr(counters, name))
                for name in ("read_bytes", "read_count", "read_time")
            )
            latency_ms = ratio(ms, requests)
            row[f"disk_{disk}_read_bytes_per_s"] = read
            row[f"disk_{disk}_read_latency_us"] = None if latency_ms is None else latency_ms * 1000
        return row

    def facts(self) -> dict[str, Any]:
        texts = {disk: read_text(f"/sys/block/{disk}/queue/rotational") for disk in self._used()}
        return {
            "disks": {
                disk: {"rotational": text.strip() == "1" if text and text.strip() else None}
                for disk, text in texts.items()
            }
        }

    def _used(self) -> dict[str, Any]:
        counters = psutil.disk_io_counters(perdisk=True, nowrap=False) or {}
        return {disk: one for disk, one in counters.items() if any(one) and os.path.isdir(f"/sys/block/{disk}")}


def disk_of(device: str) -> str | None:
    """Return the disk of a device, given as `major:minor` or by name; None for a device that is on none."""
    for folder in ("/sys/dev/block", "/sys/class/block"):
        parts = Path(os.path.realpath(f"{folder}/{device.removeprefix('/dev/')}")).parts
        if "block" in parts[:-1]:
            name = parts[parts.index("block") + 1]
            if os.path.isdir(f"/sys/block/{name}"):
                return name
    return None


def load_nvml() -> Any:
    import pynvml  # type: ignore[import-untyped]  # it has no annotations; its import takes 20 ms

    return pynvml


class Gpus:
    """All GPUs visible to NVML. A query that a driver or device refuses gives None."""

    name = "gpus"

    def __init__(self, load: Callable[[], Any] = load_nvml) -> None:
        """Start NVML. Raises its error without a driver."""
        self._nvml = load()
        self._nvml.nvmlInit()
        count = self._ask("nvmlDeviceGetCount") or 0
        self._handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]

    def read(self) -> Readings:
        row: Readings = {}
        for name, handle in self._each():
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
            utilisation = self._ask("nvmlDeviceGetUtilizationRates", handle)
            values = {
                "utilisation_percent": None if utilisation is None else utilisation.gpu,
                "memory_used_bytes": None if memory is None else memory.used,
            }
            row |= {f"{name}_{column}": value for column, value in values.items()}
        return row

    def facts(self) -> dict[str, Any]:
        return {"gpus": {name: self._facts(handle) for name, handle in self._each()}}

    def close(self) -> None:
        self._ask("nvmlShutdown")

    def _each(self) -> list[tuple[str, Any]]:
        return [(f"gpu{index}", handle) for index, handle in enumerate(self._handles) if handle is not None]

    def _facts(self, handle: Any) -> dict[str, Any]:
        memory, name = self._ask("nvmlDeviceGetMemoryInfo", handle), self._ask("nvmlDeviceGetName", handle)
        return {
            "name": name.decode("utf-8", "replace") if isinstance(name, bytes) else name,  # bytes in older packages
            "memory_bytes": None if memory is None else memory.total,
        }

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None
