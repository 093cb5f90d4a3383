"""A `pynvml` without a GPU: its functions by name, with the answers that a test gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NVMLError(Exception):
    pass


@dataclass
class Metric:
    metricId: int = 0  # noqa: N815 - pynvml's name
    nvmlReturn: int = 0  # noqa: N815
    value: float = 0.0


class MetricsGet:
    """As ctypes' structure: metrics exist, and are filled in."""

    def __init__(self) -> None:
        self.version = self.numMetrics = 0
        self.sample1: Any = None
        self.sample2: Any = None
        self.metrics = [Metric() for _ in range(8)]


@dataclass
class Device:
    """One GPU, or MIG instance, by what NVML's functions (without `nvmlDeviceGet`) answer for it; what is not here is
    not supported."""

    answers: dict[str, Any] = field(default_factory=dict)
    has_gpm: bool = False
    gpm: dict[int, float] = field(default_factory=dict)
    """Metrics by id between any two samples; those not here fail."""
    migs: dict[int, Device] = field(default_factory=dict)


class Library:
    """Functions whose names begin with `nvmlDeviceGet` ask the device; the rest are here. Nothing that sets is."""

    NVMLError = NVMLError
    NVML_GPM_METRICS_GET_VERSION = 1
    NVML_GPM_METRIC_SM_UTIL = 2
    c_nvmlGpmMetricsGet_t = MetricsGet  # noqa: N815

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.called: list[str] = []
        self.samples = 0
        self.is_open = True

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvmlDeviceGet"):
            raise AttributeError(name)

        def ask(device: Device, *arguments: Any) -> Any:
            self.called.append(name)
            answer = device.answers.get(name.removeprefix("nvmlDeviceGet"), NVMLError("Not Supported"))
            answer = answer[arguments[0]] if arguments and isinstance(answer, dict) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return ask

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.devices)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Device:  # noqa: N802
        return self.devices[index]

    def nvmlDeviceGetMaxMigDeviceCount(self, device: Device) -> int:  # noqa: N802
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, device: Device, index: int) -> Device:  # noqa: N802
        if index not in device.migs:
            raise NVMLError("Not Found")
        return device.migs[index]

    def nvmlGpmQueryDeviceSupport(self, device: Device) -> Any:  # noqa: N802
        return SimpleNamespace(isSupportedDevice=int(device.has_gpm))

    def nvmlGpmSampleAlloc(self) -> dict[str, Any]:  # noqa: N802
        self.samples += 1
        return {}

    def nvmlGpmSampleFree(self, sample: dict[str, Any]) -> None:  # noqa: N802
        self.samples -= 1

    def nvmlGpmSampleGet(self, device: Device, sample: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        sample.update(gpm=device.gpm)
        return sample

    def nvmlGpmMigSampleGet(self, device: Device, instance: int, sample: dict[str, Any]) -> dict[str, Any]:  # noqa: N802
        mig = next(mig for mig in device.migs.values() if mig.answers["GpuInstanceId"] == instance)
        sample.update(gpm=mig.gpm)
        return sample

    def nvmlGpmMetricsGet(self, asked: MetricsGet) -> MetricsGet:  # noqa: N802
        assert asked.sample1 is not asked.sample2
        for metric in asked.metrics[: asked.numMetrics]:
            metric.nvmlReturn = 0 if metric.metricId in asked.sample2["gpm"] else 3
            metric.value = asked.sample2["gpm"].get(metric.metricId, 0.0)
        return asked
