"""What the machine had to do with it: cores, memory, storage and GPUs that were short, slow or shared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from headrace.doctor.analyse.environment_storage import busy_disks, network_storage, reads_from_disk
from headrace.doctor.causes.cores import (
    other_processes,
    stolen_cores,
    throttled_cores,
    too_many_threads,
    too_many_workers,
)
from headrace.doctor.causes.gpu import gpu_findings
from headrace.doctor.causes.memory import copied_memory, little_memory, little_shared_memory, out_of_memory, swapping
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.host import Host, hosts
from headrace.doctor.session.model import Session

_CHECKS: list[Callable[[Host], list[Finding]]] = [
    out_of_memory,
    throttled_cores,
    too_many_threads,
    too_many_workers,
    other_processes,
    stolen_cores,
    swapping,
    little_memory,
    copied_memory,
    little_shared_memory,
    busy_disks,
    reads_from_disk,
    network_storage,
    gpu_findings,
]


def findings(session: Session) -> list[Finding]:
    """Of all machines, heaviest first. What was not measured finds nothing."""
    found = [
        replace(finding, text=f"{host.machine.host}: {finding.text}") if len(session.machines) > 1 else finding
        for host in hosts(session)
        for check in _CHECKS
        for finding in check(host)
    ]
    return sorted(found, key=lambda finding: -finding.weight)
