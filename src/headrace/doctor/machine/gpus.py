"""Readings of NVIDIA GPUs through NVML (nvidia-ml-py). Nothing is ever set or reset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.doctor.machine.readings import Readings

HEAT = 0x08 | 0x20 | 0x40
"""Reasons for lower clocks: hardware slowdown, and thermal slowdown by software and hardware."""
POWER = 0x04 | 0x80
"""Reasons for lower clocks: the power limit, and the power brake of the machine."""
SM_CLOCK = 1


def load_nvml() -> Any:
    import pynvml  # type: ignore[import-untyped]  # it has no annotations; its import takes 20 ms

    return pynvml


class Gpus:
    """All GPUs visible to NVML. Without NVML there are no columns, and `gpus_unknown` says why.

    A query that a driver or device refuses gives None.
    """

    name = "gpus"

    def __init__(self, load: Callable[[], Any] = load_nvml) -> None:
        self._nvml = load()
        self._why: str | None = None
        self._handles: list[Any] = []
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._why = f"NVML: {error}"
        else:
            count = self._ask("nvmlDeviceGetCount") or 0
            self._handles = [self._ask("nvmlDeviceGetHandleByIndex", index) for index in range(count)]

    def read(self, now_s: float) -> Readings:
        row: Readings = {}
        for name, handle in self._each():
            memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
            utilisation = self._ask("nvmlDeviceGetUtilizationRates", handle)
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
            values = {
                "utilisation_percent": None if utilisation is None else utilisation.gpu,
                "memory_used_bytes": None if memory is None else memory.used,
                "sm_clock_mhz": self._ask("nvmlDeviceGetClockInfo", handle, SM_CLOCK),
                "slowed_by_heat": None if reasons is None else float(bool(reasons & HEAT)),
                "slowed_by_power": None if reasons is None else float(bool(reasons & POWER)),
            }
            row |= {f"{name}_{column}": value for column, value in values.items()}
        return row

    def facts(self) -> dict[str, Any]:
        if self._why is not None:
            return {"gpus": None, "gpus_unknown": self._why}
        return {"gpus": {name: self._facts(handle) for name, handle in self._each()}, "gpus_unknown": None}

    def close(self) -> None:
        self._ask("nvmlShutdown")
        self._handles, self._why = [], "closed"

    def _each(self) -> list[tuple[str, Any]]:
        return [(f"gpu{index}", handle) for index, handle in enumerate(self._handles) if handle is not None]

    def _facts(self, handle: Any) -> dict[str, Any]:
        memory, name = self._ask("nvmlDeviceGetMemoryInfo", handle), self._ask("nvmlDeviceGetName", handle)
        return {
            "name": name.decode("utf-8", "replace") if isinstance(name, bytes) else name,  # bytes in older packages
            "memory_bytes": None if memory is None else memory.total,
            "sm_clock_max_mhz": self._ask("nvmlDeviceGetMaxClockInfo", handle, SM_CLOCK),
        }

    def _ask(self, function: str, *arguments: Any) -> Any:
        try:
            return getattr(self._nvml, function)(*arguments)
        except (self._nvml.NVMLError, AttributeError):
            return None
