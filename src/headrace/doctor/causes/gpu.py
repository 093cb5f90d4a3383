"""GPUs: misleading utilisation, and memory left for a larger batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..measure import Finding, Host
from .machine_kinds import MACHINE

LEFT = 0.5
"""Reporting threshold: share of a GPU's memory that the run never used."""
BUSY_PERCENT = 80.0
IDLE_PERCENT = 50.0


def gpu_findings(host: Host) -> Iterator[Finding]:
    """Yield problems of the GPUs that the command uses."""
    gpus: dict[str, dict[str, Any]] = host.facts.get("gpus") or {}
    for name in _used(host, gpus):
        label = name.replace("gpu", "GPU ").replace("_mig", " MIG ")
        for check in (_memory_left, _misleading_utilisation):
            yield from check(host, name, label, gpus[name])


def _used(host: Host, gpus: dict[str, dict[str, Any]]) -> list[str]:
    """Return the GPUs that a process of the command uses.

    In a container, NVML may report host process ids. In this case all visible GPUs that may be in use count if the
    command trains on a GPU: NVML shows only the container's GPUs.
    """
    ours = [name for name, facts in gpus.items() if set(facts.get("pids") or ()) & set(host.machine.processes)]
    has_gpu = any(host.told(trainer.pid, "facts", "device") is not None for trainer in host.trainers)
    return ours or [name for name, facts in gpus.items() if has_gpu and facts.get("pids") != []]


def _memory_left(host: Host, gpu: str, label: str, facts: dict[str, Any]) -> Iterator[Finding]:
    used, total = host.peak(f"{gpu}_memory_used_bytes"), facts.get("memory_bytes")
    if used is not None and total and used <= (1 - LEFT) * total:
        yield MACHINE["gpu-memory-left"].found(gpu=label, left=total - used, total=total)


def _misleading_utilisation(host: Host, gpu: str, label: str, facts: dict[str, Any]) -> Iterator[Finding]:
    utilisation, sm = host.mean(f"{gpu}_utilisation_percent"), host.mean(f"{gpu}_sm_percent")
    if utilisation is not None and sm is not None and utilisation >= BUSY_PERCENT and sm <= IDLE_PERCENT:
        yield MACHINE["gpu-util"].found(gpu=label, utilisation=utilisation, sm=sm)
