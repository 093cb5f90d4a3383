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

from headrace.doctor.machine.kernel import Readings, ratio, scaled


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


MIB = 1 << 20
_COLUMNS = {
    "sm_percent": ("NVML_GPM_METRIC_SM_UTIL", 1),
    "occupancy_percent": ("NVML_GPM_METRIC_SM_OCCUPANCY", 1),
    "tensor_percent": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 1),
    "memory_bandwidth_percent": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 1),
    "pcie_sent_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", MIB),
    "pcie_received_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", MIB),
}
"""Metric and its factor by column."""


class Gpm:
    """Performance monitor of one GPU, or of one of its MIG instances, since the previous reading."""

    def __init__(self, nvml: Nvml, handle: Any, instance: int | None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._samples = [nvml.ask("nvmlGpmSampleAlloc") for _ in range(2)]
        self._has_last = False

    def read(self) -> Readings:
        row: Readings = dict.fromkeys(_COLUMNS)
        before, now = self._samples
        if before is None or now is None:
            return row
        if self._instance is None:
            taken = self._nvml.ask("nvmlGpmSampleGet", self._handle, now)
        else:
            taken = self._nvml.ask("nvmlGpmMigSampleGet", self._handle, self._instance, now)
        if taken is None:
            return row
        if self._has_last:
            row.update(self._between(before, now))
        self._samples = [now, before]
        self._has_last = True
        return row

    def close(self) -> None:
        for sample in self._samples:
            if sample is not None:
                self._nvml.ask("nvmlGpmSampleFree", sample)
        self._samples = [None, None]

    def _between(self, before: Any, now: Any) -> Readings:
        library = self._nvml.library
        asked = library.c_nvmlGpmMetricsGet_t()
        asked.version = library.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(_COLUMNS)
        asked.sample1, asked.sample2 = before, now
        for place, (metric, _) in enumerate(_COLUMNS.values()):
            asked.metrics[place].metricId = getattr(library, metric)
        if self._nvml.ask("nvmlGpmMetricsGet", asked) is None:
            return {}
        return {
            column: asked.metrics[place].value * factor if asked.metrics[place].nvmlReturn == 0 else None
            for place, (column, (_, factor)) in enumerate(_COLUMNS.items())
        }


KB = 1000
"""Unit of PCIe throughput in NVML."""
HEAT = 0x08 | 0x20 | 0x40
"""Reasons for lower clocks: hardware slowdown, and thermal slowdown by software and hardware."""
POWER = 0x04 | 0x80
"""Reasons for lower clocks: the power limit, and the power brake of the machine."""


class Gpu:
    """One GPU, or one MIG instance, which has its own memory and SMs and shares the rest."""

    def __init__(self, nvml: Nvml, index: int, handle: Any, mig: int | None = None, mig_handle: Any = None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._mig_handle = mig_handle
        self._own = handle if mig is None else mig_handle
        self.name = f"gpu{index}" if mig is None else f"gpu{index}_mig{mig}"
        instance = None if mig is None else nvml.ask("nvmlDeviceGetGpuInstanceId", mig_handle)
        support = nvml.ask("nvmlGpmQueryDeviceSupport", handle)
        has_gpm = support is not None and bool(support.isSupportedDevice)
        self._gpm = Gpm(nvml, handle, instance) if has_gpm else None
        self._pids: set[int] | None = None
        self._link = (0, 0)

    def read(self) -> Readings:
        memory = self._nvml.ask("nvmlDeviceGetMemoryInfo", self._own)
        utilisation = self._nvml.ask("nvmlDeviceGetUtilizationRates", self._own)
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # name in drivers before 535
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons")
        if self._gpm is not None:
            of_link = self._gpm.read()
        else:  # average over 20 ms, for which each call blocks
            sent, received = (self._ask("nvmlDeviceGetPcieThroughput", direction) for direction in (0, 1))
            of_link = {"pcie_sent_bytes_per_s": scaled(sent, KB), "pcie_received_bytes_per_s": scaled(received, KB)}
        self._see_use()
        row: Readings = {
            "utilisation_percent": None if utilisation is None else utilisation.gpu,
            "sm_percent": None,
            "memory_used_bytes": None if memory is None else memory.used,
            "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", 1),
            "memory_clock_mhz": self._ask("nvmlDeviceGetClockInfo", 2),
            "power_w": ratio(self._ask("nvmlDeviceGetPowerUsage"), 1000),
            "slowed_by_heat": None if reasons is None else float(bool(reasons & HEAT)),
            "slowed_by_power": None if reasons is None else float(bool(reasons & POWER)),
            **of_link,
        }
        return {f"{self.name}_{column}": value for column, value in row.items()}

    def facts(self) -> dict[str, Any]:
        memory = self._nvml.ask("nvmlDeviceGetMemoryInfo", self._own)
        generation, width = self._link
        return {
            "name": _text(self._ask("nvmlDeviceGetName")),
            "uuid": _text(self._nvml.ask("nvmlDeviceGetUUID", self._own)),
            "memory_bytes": None if memory is None else memory.total,
            "sm_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", 1),
            "memory_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", 2),
            "power_limit_w": ratio(self._ask("nvmlDeviceGetEnforcedPowerLimit"), 1000),
            "pcie_generation": generation or None,
            "pcie_width": width or None,
            "pcie_generation_max": self._ask("nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width_max": self._ask("nvmlDeviceGetMaxPcieLinkWidth"),
            "has_sm_activity": self._gpm is not None,
            "pids": None if self._pids is None else sorted(self._pids),
        }

    def close(self) -> None:
        if self._gpm is not None:
            self._gpm.close()

    def _ask(self, function: str, *arguments: Any) -> Any:
        return self._nvml.ask(function, self._handle, *arguments)

    def _see_use(self) -> None:
        """Record the PCIe link and the computing processes. An idle GPU lowers its link, so the maximum counts."""
        generation = self._ask("nvmlDeviceGetCurrPcieLinkGeneration") or 0
        width = self._ask("nvmlDeviceGetCurrPcieLinkWidth") or 0
        self._link = max(self._link[0], generation), max(self._link[1], width)
        running = self._nvml.ask("nvmlDeviceGetComputeRunningProcesses", self._own)
        if running is not None:
            self._pids = (self._pids or set()) | {process.pid for process in running}


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
        nvml = self._nvml
        if nvml is None:
            return {"gpus": None, "gpus_unknown": self._why}
        return {
            "gpus": {gpu.name: gpu.facts() for gpu in self._gpus},
            "gpus_unknown": None,
            "driver": _text(nvml.ask("nvmlSystemGetDriverVersion")),
            "nvml_untold": dict(nvml.reasons),
        }

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


def _text(value: str | bytes | None) -> str | None:
    """Return text; older packages return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
