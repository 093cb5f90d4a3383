"""Findings about storage: where reads come from, and whether the disks keep up."""

from __future__ import annotations

from typing import Any

from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.measure.host import Host
from headrace.doctor.quantities import number, percent, size

MIB = 1 << 20
FROM_DISK = "reads-from-disk"
"""Code of the finding that the page cache did not have what was read."""
LEAST_FROM_DISK = 0.2
"""Share of the bytes read that the page cache did not have."""
READ_BYTES_PER_S = 1 * MIB
SATURATED = 0.9
"""Share of time in which a disk had a request under way."""
STALLED = 0.05
"""Share of time in which something waited for storage."""


def reads_from_disk(host: Host) -> list[Finding]:
    read, disk = host.summed(host.makers, "read_call_bytes"), host.summed(host.makers, "read_bytes")
    rate = host.mean("command_read_bytes_per_s")
    if not read or disk is None or disk < LEAST_FROM_DISK * read or rate is None or rate < READ_BYTES_PER_S:
        return []
    stalled = host.mean("pressure_io_some_share")
    return [
        Finding(
            FROM_DISK,
            stalled or 0.0,
            f"{percent(min(disk / read, 1.0))} of what is read comes from disk, not from the page cache.",
            f"{size(disk)} in all, {size(rate)} a second{_stalled_text(stalled)}; {_fits(host, disk)}.",
            "A second epoch reads it again unless it fits into memory: pack small files into larger ones, read them in "
            "order, or put them on faster storage.",
        )
    ]


def network_storage(host: Host) -> list[Finding]:
    """What the kernel counts of disks says nothing about servers, so that they are at least named."""
    rate = host.mean("command_read_call_bytes_per_s")
    mounts: list[dict[str, Any]] = [mount for mount in host.facts.get("mounts") or [] if mount["network"]]
    if not mounts or rate is None or rate < READ_BYTES_PER_S:
        return []
    named = ", ".join(f"{mount['path']} ({mount['kind']}, from {mount['source']})" for mount in mounts)
    return [
        Finding(
            "network-storage",
            0.0,
            f"Data is read over a network: {named}.",
            f"{size(rate)} a second in all; the figures of this machine's disks are without it.",
            "To open a file costs a round trip: pack small files into larger ones, or copy them to a local disk.",
        )
    ]


def busy_disks(host: Host) -> list[Finding]:
    """A disk that serves one request at a time is saturated when it is always busy; for one that serves many at once,
    only waiting processes show it, so both are asked for where both are known."""
    stalled = host.mean("pressure_io_some_share")
    if stalled is not None and stalled < STALLED:
        return []
    return [
        finding for disk in host.facts.get("disks") or {} if (finding := _busy_disk(host, disk, stalled)) is not None
    ]


def _busy_disk(host: Host, disk: str, stalled: float | None) -> Finding | None:
    busy, rate = host.mean(f"disk_{disk}_busy_share"), host.mean(f"disk_{disk}_read_bytes_per_s")
    requests, latency_us = host.mean(f"disk_{disk}_reads_per_s"), host.mean(f"disk_{disk}_read_latency_us")
    if busy is None or busy < SATURATED or rate is None or rate < READ_BYTES_PER_S:
        return None
    latency = f", {number(latency_us / 1000)} ms each" if latency_us is not None else ""
    return Finding(
        "disk-saturated",
        stalled or 0.0,
        f"Disk {disk} is busy {percent(busy)} of the time.",
        f"{size(rate)} and {number(requests or 0)} reads a second{latency}{_stalled_text(stalled)}.",
        "Many small reads: pack files into larger ones and read them in order; large ones: the disk gives no more, use "
        "several, or local NVMe.",
    )


def _fits(host: Host, disk: float) -> str:
    """The size of the dataset is not known; what was read of it is a lower bound."""
    memory = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    if memory is None:
        return "how much memory there is for caching was not measured"
    if disk > memory:
        return f"that is more than the {size(memory)} of memory, so it cannot all be cached"
    return f"whether the whole dataset fits into the {size(memory)} of memory was not seen"


def _stalled_text(stalled: float | None) -> str:
    return "" if stalled is None else f"; something waited for storage {percent(stalled)} of the time"
