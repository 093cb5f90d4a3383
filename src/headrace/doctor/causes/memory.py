"""Memory of a machine: a process killed for want of it, copied pages, and /dev/shm."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.doctor.causes.cause import APART, MACHINE, Cause, of_machines
from headrace.doctor.measure import Finding, Host
from headrace.doctor.quantities import counted, percent, size

OOM_KILL, COPY_ON_WRITE = "oom-kill", "copy-on-write"
MIB = 1 << 20
DOCKER_SHM_BYTES = 64 * MIB
"""Default size of /dev/shm in a Docker container."""
NEARLY_FULL = 0.8
COPIED_BYTES = 64 * MIB
COPIED_SHARE = 0.01
"""Share of total memory. Copying is reported if it exceeds this and `COPIED_BYTES`."""


def kill_findings(host: Host) -> Iterator[Finding]:
    """Find processes that the kernel killed for want of memory."""
    kills, limit = host.fact("oom_kills"), host.fact("memory_limit_bytes")
    if kills:
        where = f"In a control group of {size(limit)}" if limit is not None else "On this machine"
        yield Finding(
            OOM_KILL,
            1.0,
            f"The kernel killed {counted(kills, 'process')} because memory ran out during the run.",
            f"{where}; the command held {size(host.peak('command_pss_bytes'))} at most, as far as was seen.",
            "Raise the memory limit, or use fewer workers, a smaller prefetch_factor or smaller batches.",
        )


def _copied(host: Host) -> Iterator[Finding]:
    """Find workers that write to memory inherited from their parent, which Python does by counting references."""
    makers = host.worker_makers
    copied, shared = host.summed(makers, "cow_bytes"), host.summed(makers, "shared_bytes_first")
    most = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    if copied is None or shared is None or most is None or copied < max(COPIED_BYTES, COPIED_SHARE * most):
        return
    yield Finding(
        COPY_ON_WRITE,
        0.0,
        f"Workers copied {size(copied)} of memory that they shared with their parent.",
        f"{counted(len(makers), 'worker')}; they shared {size(shared)} when first seen, and can grow by that much, of "
        f"{size(most)} that there is ({percent(shared / most)}).",
        "Keep paths and labels in numpy arrays or torch tensors, not in lists and dicts of Python objects: reading "
        "one counts a reference, which writes to its page and copies it.",
    )


def _shared_memory(host: Host) -> Iterator[Finding]:
    """Find a small or full /dev/shm, where workers put batches. Without space, a worker dies with a bus error."""
    total, used = host.fact("shm_bytes"), host.peak("shm_used_bytes")
    is_full = total is not None and used is not None and used >= NEARLY_FULL * total
    if total is None or not host.workers or not (is_full or total <= DOCKER_SHM_BYTES):
        return
    yield Finding(
        "shm",
        0.0,
        f"/dev/shm is {'nearly full' if is_full else 'small'}: {size(used)} of {size(total)} in use at most.",
        f"{counted(host.workers, 'worker')} put batches there; one that finds no room dies with a bus error.",
        "Start the container with --shm-size=8g or --ipc=host; in Kubernetes mount an emptyDir in memory there.",
    )


KILLS = Cause(
    findings={OOM_KILL: "The kernel killed a process for want of memory."}, find=of_machines(kill_findings), order=APART
)
CAUSE = Cause(
    findings={
        COPY_ON_WRITE: "Workers copied 64 MB and 1 % of the memory.",
        "shm": "There are workers, and `/dev/shm` has 64 MB or is 80 % full.",
    },
    find=of_machines(lambda host: [*_copied(host), *_shared_memory(host)]),
    order=MACHINE,
)
