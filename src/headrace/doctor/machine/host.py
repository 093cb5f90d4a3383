"""Readings of the host and the command's processes, by psutil, control groups and NVML. Nothing is ever set."""

from __future__ import annotations

import math
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Any

import psutil

from headrace.system import ControlGroups, core_wait_s, pairs, read_text


class Rates:
    """Growth of counters per second since their last reading; None for a first, unknown or decreased value."""

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


class MachinePart(ABC):
    """Sampled part of the machine. Its construction, when sampling begins, reads what may be gone at the end."""

    name: str

    @abstractmethod
    def read(self) -> Readings:
        """Return one reading. Columns may appear late or be missing; rates are since the previous reading."""

    def facts(self) -> dict[str, Any]:
        """Return constants, and totals over the run. Called once, when sampling ends."""
        return {}


class Cores(MachinePart):
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
        """Return core seconds per second of the allowed cores; None if none has passed, as in some sandboxes."""
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


class MachineMemory(MachinePart):
    name = "memory"

    def __init__(self, cgroups: ControlGroups) -> None:
        self._cgroups = cgroups
        self._kills = self._count_kills()

    def read(self) -> Readings:
        return {"memory_available_bytes": psutil.virtual_memory().available, "shm_used_bytes": _shm("used")}

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


class Pressure(MachinePart):
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


def load_nvml() -> Any:
    import pynvml  # type: ignore[import-untyped]  # it has no annotations; its import takes 20 ms

    return pynvml


class Gpus(MachinePart):
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

    def close(self) -> None:
        self._nvml.nvmlShutdown()


DETAILS_SHARE = 0.003
"""Share of one core for readings of memory of all processes."""
DETAILS_CREDIT_S = 0.1
"""Initial seconds, so that the first workers are read soon after their fork."""
DETAILS_INTERVAL_S = 5.0


class ProcessReadings:
    """Figures of one process, each the latest or the largest seen.

    A figure is missing if the kernel does not report it, such as memory and I/O of another user's process. A forked
    worker begins with all its parent's memory, shared: a page becomes its own when either process writes to it, and
    reading a Python object writes to its reference count. `cow_bytes` measures that growth: the decrease of shared
    anonymous memory since the process was first seen, as far as its private memory has grown by as much. It is a lower
    bound, since it misses pages copied before the first reading.
    """

    def __init__(self, process: psutil.Process, started_us: int) -> None:
        self.process = process
        self.detailed_at_s = -math.inf
        self.pss_bytes: int | None = None
        """Current proportional set size; None if not read."""
        self.used_s = 0.0
        """CPU time of the process and its ended children that it waited for."""
        self.figures: dict[str, Any] = {"started": started_us}
        self._first: tuple[int, int] | None = None

    def read(self, now_s: float) -> None:
        """Read the cheap figures. Raises psutil.Error if the process is gone."""
        with self.process.oneshot():
            times = self.process.cpu_times()
            self.used_s = sum(times[:4])
            self.figures |= {"last": round(now_s * 1e6), "cpu_s": times.user + times.system}
            with suppress(psutil.AccessDenied, psutil.ZombieProcess):
                counters = self.process.io_counters()
                self.figures |= {"read_call_bytes": counters.read_chars, "read_bytes": counters.read_bytes}
        if (wait_s := core_wait_s(self.process.pid)) is not None:
            self.figures["cpu_wait_s"] = wait_s

    def read_memory(self) -> None:
        """Read memory, for which the kernel walks all pages (10 ms for 500 MB)."""
        with suppress(psutil.Error):
            memory = self.process.memory_full_info()
            self.pss_bytes = memory.pss
            shared = max(memory.rss - memory.shared - memory.uss, 0)
            self._first = self._first or (shared, memory.uss)
            self.figures.setdefault("shared_bytes_first", shared)
            copied = max(min(self._first[0] - shared, memory.uss - self._first[1]), 0)
            for name, value in (
                ("pss_bytes_peak", memory.pss),
                ("private_bytes_peak", memory.uss),
                ("cow_bytes", copied),
            ):
                self.figures[name] = max(value, self.figures.get(name, 0))


class Processes(MachinePart):
    """The doctor's descendants: the command's processes, and orphans of theirs, which the doctor adopts."""

    name = "processes"

    def __init__(self, root: int, rates: Rates) -> None:
        self._doctor = psutil.Process()
        self._others = {one for one in self._doctor.children() if one.pid != root}
        """Children that the doctor had before the command."""
        self._live: dict[psutil.Process, ProcessReadings] = {}
        self._ended: list[ProcessReadings] = []
        self._left_s, self._earned_at_s = DETAILS_CREDIT_S, rates.now_s
        """Seconds that expensive readings may still take, and when they were last increased."""
        self._rates = rates

    def read(self) -> Readings:
        now_s = self._rates.now_s
        descendants = set(self._doctor.children(recursive=True)) - self._others
        for process in set(self._live).difference(descendants):
            self._ended.append(self._live.pop(process))
        for process in descendants:
            with suppress(psutil.Error):
                if process not in self._live:
                    started_us = round((now_s - time.time() + process.create_time()) * 1e6)
                    self._live[process] = ProcessReadings(process, started_us)
                self._live[process].read(now_s)
        self._read_details(now_s)
        known, waited = [*self._ended, *self._live.values()], self._doctor.cpu_times()
        used_s = sum(one.used_s for one in self._live.values()) + waited.children_user + waited.children_system
        pss = [one.pss_bytes for one in self._live.values() if one.pss_bytes is not None]
        # Over all processes ever seen that report the figure, so that the sum only grows.
        read = [one.figures["read_bytes"] for one in known if "read_bytes" in one.figures]
        return {
            "command_pss_bytes": sum(pss) if pss and len(pss) == len(self._live) else None,
            "cpu_cores_command": self._rates.per_second("used_s", used_s if known else None),
            "command_read_bytes_per_s": self._rates.per_second("read_bytes", sum(read) if read else None),
        }

    def figures(self) -> dict[int, dict[str, Any]]:
        """Return figures by pid; of two processes with the same number, the later."""
        return {one.process.pid: dict(one.figures) for one in [*self._ended, *self._live.values()]}

    def _read_details(self, now_s: float) -> None:
        """Read details within their budget: new processes first, then the longest unread. Overdrafts delay."""
        self._left_s = min(self._left_s + DETAILS_SHARE * (now_s - self._earned_at_s), DETAILS_CREDIT_S)
        self._earned_at_s = now_s
        for one in sorted(self._live.values(), key=lambda one: one.detailed_at_s):
            if self._left_s <= 0 or now_s - one.detailed_at_s < DETAILS_INTERVAL_S:
                return
            began = time.thread_time()
            one.detailed_at_s = now_s
            one.read_memory()
            self._left_s -= time.thread_time() - began
