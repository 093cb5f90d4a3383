"""Memory: of the machine, of the control group, and what processes share."""

from __future__ import annotations

from collections.abc import Iterator

from ..measure import Finding, Host
from ..quantities import counted, percent, size

MIB = 1 << 20
DOCKER_SHM_BYTES = 64 * MIB
"""Size of a Docker container's /dev/shm by default."""
NEARLY_FULL = 0.8
NEAR_LIMIT = 0.9
SWAP_BYTES_PER_S = 1 * MIB
COPIED_BYTES = 64 * MIB
COPIED_SHARE = 0.01
"""Share of the memory there is: from both of these on, copying is worth a word."""
COPIED = "copy-on-write"
"""Code of the finding that workers copy memory of their parent's."""
OOM_KILL = "oom-kill"
"""Code of the finding that the kernel killed processes for want of memory."""


def memory_findings(host: Host) -> Iterator[Finding]:
    """Yield what a machine's memory is short of."""
    kills, limit = host.fact("oom_kills"), host.fact("memory_limit_bytes")
    if kills:
        where = f"In a control group of {size(limit)}" if limit is not None else "On this machine"
        yield Finding(
            OOM_KILL,
            1.0,
            f"The kernel killed {counted(int(kills), 'process')} because memory ran out during the run.",
            f"{where}; the command held {_size(host.peak('command_pss_bytes'))} at most, as far as was seen.",
            "Raise the memory limit, or use fewer workers, a smaller prefetch_factor or smaller batches.",
        )
    stalled = host.mean("pressure_memory_some_share") or 0.0
    moved = sum(host.mean(f"swap_{way}_bytes_per_s") or 0.0 for way in ("in", "out"))
    if moved >= SWAP_BYTES_PER_S:
        yield Finding(
            "swapping",
            stalled,
            f"The machine swaps {size(moved)} a second.",
            f"{_size(host.peak('swap_used_bytes'))} of swap in use, "
            f"{_size(host.least_free_bytes)} of memory left at the least.",
            "Use fewer workers or a smaller prefetch_factor, or keep less of the dataset in Python objects.",
        )
    used = host.peak("cgroup_memory_used_bytes")
    if limit is not None and used is not None and used >= NEAR_LIMIT * limit:
        yield Finding(
            "memory-near-limit",
            stalled,
            f"Memory is nearly used up: {size(used)} of {size(limit)}.",
            "The control group's limit; file cache that can be dropped is not counted.",
            "Raise the limit before a worker is killed, or use fewer workers or a smaller prefetch_factor.",
        )
    yield from _copied(host)
    yield from _shared_memory(host)


def _copied(host: Host) -> Iterator[Finding]:
    """Find workers that write to memory inherited from their parent; Python does so by counting references."""
    makers = host.worker_makers
    copied, shared = host.summed(makers, "cow_bytes"), host.summed(makers, "shared_bytes_first")
    most = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    if copied is None or shared is None or most is None or copied < max(COPIED_BYTES, COPIED_SHARE * most):
        return
    yield Finding(
        COPIED,
        0.0,
        f"Workers copied {size(copied)} of memory that they shared with their parent.",
        f"{counted(len(makers), 'worker')}; they shared {size(shared)} when first seen, and can grow by that much, "
        f"of {size(most)} that there is ({percent(shared / most)}).",
        "Keep paths and labels in numpy arrays or torch tensors, not in lists and dicts of Python objects: reading "
        "one counts a reference, which writes to its page and copies it.",
    )


def _shared_memory(host: Host) -> Iterator[Finding]:
    """Find a small or full /dev/shm, where workers hand batches over: one that finds no room dies with a bus error."""
    total, used = host.fact("shm_bytes"), host.peak("shm_used_bytes")
    is_full = total is not None and used is not None and used >= NEARLY_FULL * total
    if total is None or not host.workers or not (is_full or total <= DOCKER_SHM_BYTES):
        return
    yield Finding(
        "shm",
        0.0,
        f"/dev/shm is {'nearly full' if is_full else 'small'}: {_size(used)} of {size(total)} in use at most.",
        f"{counted(host.workers, 'worker')} put batches there; one that finds no room dies with a bus error.",
        "Start the container with --shm-size=8g or --ipc=host; in Kubernetes mount an emptyDir in memory there.",
    )


def _size(count: float | None) -> str:
    return "an unknown amount" if count is None else size(count)
