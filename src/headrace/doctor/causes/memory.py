"""Memory of the machine and the control group, and memory that processes share."""

from __future__ import annotations

from collections.abc import Iterator

from ..measure import Finding, Host
from ..quantities import size
from .machine_kinds import MACHINE

MIB = 1 << 20
DOCKER_SHM_BYTES = 64 * MIB
"""Default size of /dev/shm in a Docker container."""
NEARLY_FULL = 0.8
SWAP_BYTES_PER_S = 1 * MIB
COPIED_BYTES = 64 * MIB
COPIED_SHARE = 0.01
"""Share of total memory. Copying is reported if it exceeds this and `COPIED_BYTES`."""


def memory_findings(host: Host) -> Iterator[Finding]:
    """Yield shortages of a machine's memory."""
    kills, limit = host.fact("oom_kills"), host.fact("memory_limit_bytes")
    if kills:
        where = f"In a control group of {size(limit)}" if limit is not None else "On this machine"
        yield MACHINE["oom-kill"].found(killed=kills, where=where, held=host.peak("command_pss_bytes"))
    stalled = host.mean("pressure_memory_some_share") or 0.0
    moved = sum(host.mean(f"swap_{way}_bytes_per_s") or 0.0 for way in ("in", "out"))
    if moved >= SWAP_BYTES_PER_S:
        in_use = host.peak("swap_used_bytes")
        yield MACHINE["swapping"].found(stalled, moved=moved, used=in_use, free=host.least_free_bytes)
    yield from _copied(host)
    yield from _shared_memory(host)


def _copied(host: Host) -> Iterator[Finding]:
    """Find workers that write to memory inherited from their parent, which Python does by counting references."""
    makers = host.worker_makers
    copied, shared = host.summed(makers, "cow_bytes"), host.summed(makers, "shared_bytes_first")
    most = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    if copied is None or shared is None or most is None or copied < max(COPIED_BYTES, COPIED_SHARE * most):
        return
    share = shared / most
    yield MACHINE["copy-on-write"].found(copied=copied, workers=len(makers), shared=shared, most=most, share=share)


def _shared_memory(host: Host) -> Iterator[Finding]:
    """Find a small or full /dev/shm, where workers put batches. Without space, a worker dies with a bus error."""
    total, used = host.fact("shm_bytes"), host.peak("shm_used_bytes")
    is_full = total is not None and used is not None and used >= NEARLY_FULL * total
    if total is None or not host.workers or not (is_full or total <= DOCKER_SHM_BYTES):
        return
    state = "nearly full" if is_full else "small"
    yield MACHINE["shm"].found(state=state, used=used, total=total, workers=host.workers)
