"""The cores that the command may use, and who uses them."""

from __future__ import annotations

import os
from typing import Any

from headrace.doctor.machine.control_groups import Cgroups
from headrace.doctor.machine.kernel import Kernel, is_whole, rows, span, whole
from headrace.doctor.machine.part import Row
from headrace.doctor.machine.rates import Rates, ratio

TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")
_USER, _NICE, _SYSTEM, _IDLE, _IOWAIT, _IRQ, _SOFTIRQ, _STEAL = range(8)
_KINDS = {"user": (_USER, _NICE), "system": (_SYSTEM, _IRQ, _SOFTIRQ), "waiting": (_IOWAIT,), "stolen": (_STEAL,)}


class Cores:
    name = "cores"

    def __init__(self, kernel: Kernel, pid: int, cgroups: Cgroups) -> None:
        self._kernel = kernel
        self._cgroups = cgroups
        self._rates = Rates()
        self._affinity = _affinity(kernel, pid)

    def read(self, now_s: float) -> Row:
        row = self._times(now_s)
        throttling = self._cgroups.throttling()
        periods = self._rates.per_second("periods", throttling.periods, now_s)
        throttled = self._rates.per_second("throttled", throttling.throttled_periods, now_s)
        row["cpu_throttled_periods_share"] = ratio(throttled, periods)
        row["cpu_throttled_cores"] = self._rates.per_second("throttled_s", throttling.throttled_s, now_s)
        return row

    def facts(self) -> dict[str, Any]:
        quota = self._cgroups.quota_cores()
        allowed = len(self._affinity) or None
        return {
            "cores": _least(allowed, quota),
            "cores_online": len(span(self._kernel.text("/sys/devices/system/cpu/online") or "")) or os.cpu_count(),
            "cores_affinity": allowed,
            "cores_quota": quota,
            **_model(self._kernel.text("/proc/cpuinfo") or ""),
        }

    def _times(self, now_s: float) -> Row:
        """Core seconds a second, of the allowed cores only. Some sandboxes write zeros for all times, so nothing is
        known where no time at all has passed."""
        ticks = [0] * 8
        for name, *values in rows(self._kernel.text("/proc/stat")):
            if name.startswith("cpu") and is_whole(name[3:]) and self._counts(int(name[3:])):
                for kind, value in enumerate(values[:8]):
                    ticks[kind] += whole(value) or 0
        rate = [self._rates.per_second(f"ticks{kind}", value, now_s) for kind, value in enumerate(ticks)]
        seconds = [None if value is None else value / TICKS_A_SECOND for value in rate]
        if not any(seconds):
            seconds = [None] * 8
        sums = {name: _sum([seconds[kind] for kind in kinds]) for name, kinds in _KINDS.items()}
        busy = _sum([sums["user"], sums["system"]])
        return {"cpu_cores_busy": busy, **{f"cpu_cores_{name}": value for name, value in sums.items()}}

    def _counts(self, core: int) -> bool:
        return not self._affinity or core in self._affinity


def _affinity(kernel: Kernel, pid: int) -> set[int]:
    for line in (kernel.text(f"/proc/{pid}/status") or "").splitlines():
        if line.startswith("Cpus_allowed_list:"):
            return span(line.partition(":")[2])
    return set()


def _least(affinity: int | None, quota: float | None) -> float | None:
    return min((cores for cores in (affinity, quota) if cores is not None), default=None)


def _sum(values: list[float | None]) -> float | None:
    """Of what was measured; None where nothing was. (Interrupts, say, are not told everywhere.)"""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _model(cpuinfo: str) -> dict[str, Any]:
    """Of the first core: what it is, and whether a hypervisor is under it (x86 tells by a flag)."""
    first: dict[str, str] = {}
    for line in cpuinfo.splitlines():
        key, _, value = line.partition(":")
        first.setdefault(key.strip(), value.strip())
    siblings, cores = first.get("siblings", ""), first.get("cpu cores", "")
    both = is_whole(siblings) and is_whole(cores) and int(cores) > 0
    return {
        "cpu_model": first.get("model name") or first.get("Model") or None,
        "threads_per_core": int(siblings) / int(cores) if both else None,
        "hypervisor_flag": "hypervisor" in first["flags"].split() if "flags" in first else None,
    }
