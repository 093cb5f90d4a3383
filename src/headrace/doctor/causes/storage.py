"""Storage: reads limited by disks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import Case, sample_us
from headrace.doctor.causes.cause import MACHINE, Cause, Run, of_machines
from headrace.doctor.causes.stages import category
from headrace.doctor.measure import Finding, Host
from headrace.doctor.quantities import percent, size

FROM_DISK = "reads-from-disk"
"""Code of the finding that reads missed the page cache."""
LEAST_FROM_DISK = 0.2
"""Reporting threshold: share of read bytes that came from storage rather than the page cache."""
READ_BYTES_PER_S = 1 << 20


def storage_findings(run: Run) -> Iterator[Finding]:
    """Yield limits on reads. Reads from disk weigh at least the share of a step that waits for reading."""
    read = 0.0
    if run.view is not None:
        read = sum(part.share for part in run.view.causes.parts if category(part.name) == "read")
        read *= run.view.wait_share or 0.0
    for one in of_machines(_reads_from_disk)(run):
        yield replace(one, weight=max(one.weight, read))


def _reads_from_disk(host: Host) -> Iterator[Finding]:
    read, disk = host.summed(host.makers, "read_call_bytes"), host.summed(host.makers, "read_bytes")
    rate = host.mean("command_read_bytes_per_s")
    if not read or disk is None or disk < LEAST_FROM_DISK * read or rate is None or rate < READ_BYTES_PER_S:
        return
    stalled = host.mean("pressure_io_some_share")
    waited = "" if stalled is None else f"; something waited for storage {percent(stalled)} of the time"
    memory = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    yield Finding(
        FROM_DISK,
        stalled or 0.0,
        f"{percent(min(disk / read, 1.0))} of what is read comes from disk, not from the page cache.",
        f"{size(disk)} in all, {size(rate)} a second{waited}; there are {size(memory)} of memory for caching.",
        "A second epoch reads it again unless it fits into memory: pack small files into larger ones, read them in "
        "order, copy them to memory or a local disk (headrace stage), or put them on faster storage.",
    )


def waiting_us(case: Case, *categories: str) -> float:
    """Return the time per sample that workers wait for files in these stages, without CPU time and waits for cores."""
    waited, idle = 0.0, 0.0
    for maker in (one for one in case.session.makers if one.trainer == case.view.trainer.pid):
        batches = maker.batches
        for row, delay in enumerate(batches.delay):
            wall = batches.fetched[row] - batches.start[row]
            idle += max(wall - sum(cpu for _, _, _, cpu in batches.stages[row]), 0)
            waited += delay or 0
    core_was_there = max(1 - waited / idle, 0.0) if idle > 0 else 1.0
    return core_was_there * sum(
        max(one.wall_us - (one.cpu_us or 0.0), 0.0) for one in case.stages(*(categories or ("read",)))
    )


def waiting_share(case: Case, *categories: str) -> float:
    """Return the share of making a batch that waits for files, or that waits in these categories."""
    whole = sample_us(case.making.stages)
    return waiting_us(case, *categories) / whole if whole else 0.0


CAUSE = Cause(
    findings={FROM_DISK: "A fifth or more of what the workers read came from storage, at 1 MB a second or more."},
    find=storage_findings,
    order=MACHINE,
    explains=(FROM_DISK,),
)
