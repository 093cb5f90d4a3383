"""Readings of the host: cores, memory, pressure and GPUs, by psutil, control groups and NVML (nvidia-ml-py).

Nothing is ever set or reset.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from math import inf
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
        }

    def _times(self) -> Readings:
        """Return core seconds per second, of the allowed cores only.

        Some sandboxes count no time at all, so the result is None if none has passed.
        """
        every = psutil.cpu_times(percpu=True)
        times = [one for number, one in enumerate(every) if number in self._affinity] or every
        seconds = {
            "busy": sum(one.user + one.nice + one.system + one.irq + one.softirq for one in times),
            "stolen": sum(one.steal for one in times),
        }
        passed = self._rates.per_second("all", sum(sum(one[:8]) for one in times))
        rates = {name: self._rates.per_second(name, value) for name, value in seconds.items()}
        return {f"cpu_cores_{name}": rate if passed else None for name, rate in rates.items()}


SHM = "/dev/shm"
"""Folder of the workers' batches, and of torch's shared tensors."""


class MachineMemory:
    name = "memory"

    def __init__(self, cgroups: ControlGroups) -> None:
        self._cgroups = cgroups
        self._kills = self._count_kills()

    def read(self) -> Readings:
        return {
            "memory_available_bytes": psutil.virtual_memory().available,
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
        for what in ("cpu", "io"):
            text = self._cgroups.pressure(what) or read_text(f"/proc/pressure/{what}")
            some = re.search(r"^some .*\btotal=(\d{1,20})$", text or "", re.M)  # microseconds
            rate = self._rates.per_second(f"pressure {what}", None if some is None else int(some[1]))
            row[f"pressure_{what}_some_share"] = ratio(rate, 1e6, most=1.0)
        return row

    def facts(self) -> dict[str, Any]:
        return {}


def load_nvml() -> Any:
    import pynvml  # type: ignore[import-untyped]  # it has no annotations; its import takes 20 ms

    return pynvml


class Gpus:
    """GPUs visible to NVML. A GPU that refuses a query has no column."""

    name = "gpus"

    def __init__(self, load: Callable[[], Any] = load_nvml) -> None:
        """Start NVML. Raises its error without a driver."""
        self._nvml = load()
        self._nvml.nvmlInit()
        self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(at) for at in range(self._nvml.nvmlDeviceGetCount())]

    def read(self) -> Readings:
        row: Readings = {}
        for at, handle in enumerate(self._handles):
            with suppress(self._nvml.NVMLError):
                row[f"gpu{at}_utilisation_percent"] = self._nvml.nvmlDeviceGetUtilizationRates(handle).gpu
        return row

    def facts(self) -> dict[str, Any]:
        return {}

    def close(self) -> None:
        self._nvml.nvmlShutdown()
