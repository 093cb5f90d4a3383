"""Readings of NVIDIA GPUs through NVML. Nothing is ever set or reset.

GPU performance monitoring (GPM) reports the SM activity of Hopper and newer GPUs between two samples. It needs no
profiling permission and does not disturb the run, since the counters always run.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.machine.kernel import Readings


@dataclass
class Nvml:
    """The `pynvml` module of nvidia-ml-py, or a test double. A failed query is None, with a reason."""

    library: Any
    reasons: dict[str, str] = field(default_factory=dict)
    """Reason of each failed query, by function name."""

    def ask(self, function: str, *arguments: Any) -> Any:
        """Return the function's result, or None and record the reason.

        Older packages, drivers and devices lack some functions, each with its own exception, and a GPU in MIG mode
        rejects others.
        """
        try:
            return getattr(self.library, function)(*arguments)
        except Exception as error:
            self.reasons[function] = f"{type(error).__name__}: {error}"
            return None


def open_nvml() -> tuple[Nvml | None, str | None]:
    """Return the initialised library, or None and the reason. `Gpus.close` shuts it down."""
    try:
        library = importlib.import_module("pynvml")
    except ImportError as error:
        return None, f"{error}: install it with pip install nvidia-ml-py"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return None, f"NVML: {error}"
    return Nvml(library), None


class SmActivity:
    """Share of active SMs of one GPU, or of one of its MIG instances, since the previous reading."""

    def __init__(self, nvml: Nvml, handle: Any, instance: int | None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._samples = [nvml.ask("nvmlGpmSampleAlloc") for _ in range(2)]
        self._has_last = False

    def percent(self) -> float | None:
        before, now = self._samples
        if before is None or now is None:
            return None
        if self._instance is None:
            taken = self._nvml.ask("nvmlGpmSampleGet", self._handle, now)
        else:
            taken = self._nvml.ask("nvmlGpmMigSampleGet", self._handle, self._instance, now)
        if taken is None:
            return None
        had_last, self._has_last = self._has_last, True
        self._samples = [now, before]
        return self._between(before, now) if had_last else None

    def close(self) -> None:
        for sample in self._samples:
            if sample is not None:
                self._nvml.ask("nvmlGpmSampleFree", sample)
        self._samples = [None, None]

    def _between(self, before: Any, now: Any) -> float | None:
        library = self._nvml.library
        asked = library.c_nvmlGpmMetricsGet_t()
        asked.version, asked.numMetrics = library.NVML_GPM_METRICS_GET_VERSION, 1
        asked.sample1, asked.sample2 = before, now
        metric = asked.metrics[0]
        metric.metricId = library.NVML_GPM_METRIC_SM_UTIL
        if self._nvml.ask("nvmlGpmMetricsGet", asked) is None or metric.nvmlReturn != 0:
            return None
        return float(metric.value)


HEAT = 0x08 | 0x20 | 0x40
"""Reasons for lower clocks: hardware slowdown, and thermal slowdown by software and hardware."""
POWER = 0x04 | 0x80
"""Reasons for lower clocks: the power limit, and the power brake of the machine."""


class Gpu:
    """One GPU, or one MIG instance, which has its own memory and SMs and shares the rest."""

    def __init__(self, nvml: Nvml, index: int, handle: Any, mig: int | None = None, mig_handle: Any = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._own = handle if mig is None else mig_handle
        self.name = f"gpu{index}" if mig is None else f"gpu{index}_mig{mig}"
        instance = None if mig is None else nvml.ask("nvmlDeviceGetGpuInstanceId", mig_handle)
        support = nvml.ask("nvmlGpmQueryDeviceSupport", handle)
        has_gpm = support is not None and bool(support.isSupportedDevice)
        self._activity = SmActivity(nvml, handle, instance) if has_gpm else None

    def read(self) -> Readings:
        memory = self._nvml.ask("nvmlDeviceGetMemoryInfo", self._own)
        utilisation = self._nvml.ask("nvmlDeviceGetUtilizationRates", self._own)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # name in drivers before 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        row: Readings = {
            "utilisation_percent": None if utilisation is None else utilisation.gpu,
            "sm_percent": None if self._activity is None else self._activity.percent(),
            "memory_used_bytes": None if memory is None else memory.used,
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", 1),
            "slowed_by_heat": None if reasons is None else float(bool(reasons & HEAT)),
            "slowed_by_power": None if reasons is None else float(bool(reasons & POWER)),
        }
        return {f"{self.name}_{column}": value for column, value in row.items()}

    def facts(self) -> dict[str, Any]:
        memory = self._nvml.ask("nvmlDeviceGetMemoryInfo", self._own)
        name = self._ask("nvmlDeviceGetName")  # bytes in older packages
        return {
            "name": name.decode("utf-8", "replace") if isinstance(name, bytes) else name,
            "memory_bytes": None if memory is None else memory.total,
            "sm_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", 1),
        }

    def close(self) -> None:
        if self._activity is not None:
            self._activity.close()

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._nvml.ask(function, self._handle, *arguments)


class Gpus:
    """All GPUs visible to NVML. Without NVML there are no columns, and `gpus_unknown` says why."""

    name = "gpus"

    def __init__(self, open_library: Callable[[], tuple[Nvml | None, str | None]] = open_nvml) -> None:
        self._nvml, self._why = open_library()
        self._gpus = [] if self._nvml is None else _gpus(self._nvml)

    def read(self, now_s: float) -> Readings:
        row: Readings = {}
        for gpu in self._gpus:
            row.update(gpu.read())
        return row

    def facts(self) -> dict[str, Any]:
        if self._nvml is None:
            return {"gpus": None, "gpus_unknown": self._why}
        gpus = {gpu.name: gpu.facts() for gpu in self._gpus}
        return {"gpus": gpus, "gpus_unknown": None, "nvml_untold": dict(self._nvml.reasons)}

    def close(self) -> None:
        for gpu in self._gpus:
            gpu.close()
        if self._nvml is not None:
            self._nvml.ask("nvmlShutdown")
            self._nvml, self._gpus, self._why = None, [], "closed"


def _gpus(nvml: Nvml) -> list[Gpu]:
    found = []
    for index in range(nvml.ask("nvmlDeviceGetCount") or 0):
        handle = nvml.ask("nvmlDeviceGetHandleByIndex", index)
        if handle is not None:
            found.extend(_instances(nvml, index, handle) or [Gpu(nvml, index, handle)])
    return found


def _instances(nvml: Nvml, index: int, handle: Any) -> list[Gpu]:
    """Return the MIG instances of a GPU in MIG mode. A GPU without MIG reports "not supported"."""
    mode = nvml.ask("nvmlDeviceGetMigMode", handle)
    if mode is None or not mode[0]:
        return []
    found = []
    for mig in range(nvml.ask("nvmlDeviceGetMaxMigDeviceCount", handle) or 0):
        mig_handle = nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, mig)
        if mig_handle is not None:
            found.append(Gpu(nvml, index, handle, mig, mig_handle))
    return found
