"""GPU performance monitoring: what the SMs did between two samples. Hopper and newer, by NVML.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html. It needs no profiler's permission and does not
disturb the run: the counters run anyway.
"""

from __future__ import annotations

from typing import Any

from headrace.doctor.machine.nvml import Nvml
from headrace.doctor.machine.part import Row

MIB = 1 << 20
_COLUMNS = {
    "sm_percent": ("NVML_GPM_METRIC_SM_UTIL", 1),
    "occupancy_percent": ("NVML_GPM_METRIC_SM_OCCUPANCY", 1),
    "tensor_percent": ("NVML_GPM_METRIC_ANY_TENSOR_UTIL", 1),
    "memory_bandwidth_percent": ("NVML_GPM_METRIC_DRAM_BW_UTIL", 1),
    "pcie_sent_bytes_per_s": ("NVML_GPM_METRIC_PCIE_TX_PER_SEC", MIB),
    "pcie_received_bytes_per_s": ("NVML_GPM_METRIC_PCIE_RX_PER_SEC", MIB),
}
"""By column: the metric, and what it is multiplied by."""


class Gpm:
    """Samples of one GPU, or of one of its MIG instances: each reading is of the time since the one before."""

    def __init__(self, nvml: Nvml, handle: Any, instance: int | None) -> None:
        self._nvml = nvml
        self._handle = handle
        self._instance = instance
        self._samples = [nvml.ask("nvmlGpmSampleAlloc") for _ in range(2)]
        self._has_last = False

    def read(self) -> Row:
        row: Row = dict.fromkeys(_COLUMNS)
        before, now = self._samples
        if before is None or now is None or not self._sample(now):
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

    def _sample(self, into: Any) -> bool:
        if self._instance is None:
            return self._nvml.ask("nvmlGpmSampleGet", self._handle, into) is not None
        return self._nvml.ask("nvmlGpmMigSampleGet", self._handle, self._instance, into) is not None

    def _between(self, before: Any, now: Any) -> Row:
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


def has_gpm(nvml: Nvml, handle: Any) -> bool:
    support = nvml.ask("nvmlGpmQueryDeviceSupport", handle)
    return support is not None and bool(support.isSupportedDevice)
