"""Storage: reads limited by disks or a network, and staged copies of the files."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.doctor.causes.case import MEDIUM, WORTH, Case, sample_us
from headrace.doctor.causes.cause import MACHINE, Cause, Proposal, RemedyKind, Run, of_machines
from headrace.doctor.causes.remedy import ONE_LINE
from headrace.doctor.causes.stage_names import category
from headrace.doctor.measure import Finding, Host
from headrace.doctor.quantities import duration, percent, size
from headrace.doctor.session.after_run import SeenFile
from headrace.doctor.session.producers import BatchProducer
from headrace.doctor.simulate import StageChange, name_of

FROM_DISK = "reads-from-disk"
"""Code of the finding that reads missed the page cache."""
LEAST_FROM_DISK = 0.2
"""Reporting threshold: share of read bytes that came from storage rather than the page cache."""
READ_BYTES_PER_S = 1 << 20
ROOM = 2.0
"""Required free space as a multiple of the files' size, which leaves space for the run."""
MEMORY = "/dev/shm/"


def storage_findings(run: Run) -> Iterator[Finding]:
    """Yield limits on reads. Reads from disk weigh at least the share of a step that waits for reading."""
    read = 0.0
    if run.view is not None:
        read = sum(part.share for part in run.view.causes.parts if category(part.name) == "read")
        read *= run.view.wait_share or 0.0
    for one in of_machines(_reads_from_disk)(run):
        yield replace(one, weight=max(one.weight, read))
    yield from of_machines(_network)(run)


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
        "order, or put them on faster storage.",
    )


def _network(host: Host) -> Iterator[Finding]:
    """Find network mounts and name their servers: the kernel's disk counters do not include them."""
    rate = host.mean("command_read_call_bytes_per_s")
    mounts: list[dict[str, Any]] = [mount for mount in host.facts.get("mounts") or [] if mount["network"]]
    if not mounts or rate is None or rate < READ_BYTES_PER_S:
        return
    named = ", ".join(f"{mount['path']} ({mount['kind']}, from {mount['source']})" for mount in mounts)
    yield Finding(
        "network-storage",
        0.0,
        f"Data is read over a network: {named}.",
        f"{size(rate)} a second in all; this machine's disk figures do not include it.",
        "Opening a file costs a round trip: pack small files into larger ones, or copy them to a local disk.",
    )


def waiting_us(case: Case, *categories: str) -> float:
    """Return the time per sample that workers wait for files: reading time minus CPU time and waits for a core.

    `categories` selects the stages; the default is `read`.
    """
    waited, idle = 0.0, 0.0
    for maker in _makers(case):
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


def _makers(case: Case) -> list[BatchProducer]:
    return [maker for maker in case.session.makers if maker.trainer == case.view.trainer.pid]


@dataclass(frozen=True)
class FilesRead:
    """Files that the workers read and that are not already in memory."""

    sized: list[SeenFile]
    unsized: list[SeenFile]
    """Folders that were not listed completely."""
    rest: int
    """Number of opens of other, unknown files."""

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.sized)

    @property
    def size(self) -> str:
        """Return the size as text, with the basis of an estimate."""
        whole = size(self.bytes)
        guessed = [one.folder for one in self.sized if one.folder is not None and one.folder.sized < one.folder.files]
        if not guessed:
            return whole
        sizes, files = sum(one.sized for one in guessed), sum(one.files for one in guessed)
        return f"about {whole} (by the sizes of {sizes:,} of {files:,} files)"

    @property
    def share(self) -> float:
        """Return the share of opens that go to these files; 1 if one stays open between reads."""
        if any(one.folder is None and one.seen > one.opens for one in self.sized):
            return 1.0
        known = sum(one.opens for one in self.sized)
        return known / (known + self.rest) if known else 1.0


def _files_read(case: Case) -> FilesRead | None:
    """Return the files that workers read; None if unknown."""
    survey = case.session.survey
    if survey is None or not survey.files:
        return None
    found = [one for one in survey.files if not one.path.startswith(MEMORY)]
    unsized = [one for one in found if one.folder is not None and not one.folder.is_whole]
    return FilesRead([one for one in found if one not in unsized], unsized, case.session.opened.rest)


def _places(case: Case) -> dict[str, float]:
    """Return the free bytes in each place for copies. Copies in memory must fit alongside the run itself."""
    survey, memory = case.session.survey, case.free_bytes
    return {
        one.path: one.free_bytes if memory is None or one.kind != "memory" else min(one.free_bytes, memory)
        for one in ([] if survey is None else survey.places)
    }


def staging(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose copies of the files in memory or on a local disk."""
    share = waiting_share(case)
    cached = _cached_share(case)
    if share < WORTH or (cached is not None and 1 - cached < LEAST_FROM_DISK):
        return None
    why = (
        f"Workers wait {duration(waiting_us(case))} a sample for files to be read, {percent(share)} of making a batch."
    )
    files = _files_read(case)
    place, room, left = "/dev/shm", "room for the files", StageChange(wait=0.0)
    if files is not None:
        fits = (place for place, free in _places(case).items() if files.sized and files.bytes <= free / ROOM)
        place = "" if files.unsized else next(fits, "")
        if not place:
            return None
        room, left = f"{files.size} in {place}, copied before each run", StageChange(wait=1 - files.share)
        some = "" if files.share == 1 else f" of {percent(files.share)} of the reads"
        kind = kind.titled(f"the files{some} in {place}")
    doing = f"copy the files that it reads to {place} before each run"
    if files is not None and len(files.sized) == 1:
        doing = f"cp -r {shlex.quote(files.sized[0].path)} {place}/"
    waits = {name_of(one): left for one in case.stages("read", "lookup", "scan")}
    return kind.tried(
        case,
        lambda setup: replace(setup, storage=None, stages={**waits, **setup.stages}),
        why=why,
        confidence=MEDIUM,
        costs=[room],
        hint=f"{doing}, and give the script that path",
    )


def _cached_share(case: Case) -> float | None:
    """Return the share of read bytes that came from the page cache.

    Returns None if the share says nothing about the wait: reads use a network, or waits for a core were measured.
    """
    host = case.host
    if host is None or any(mount.get("network") for mount in host.facts.get("mounts") or []):
        return None
    if any(delay is not None for maker in _makers(case) for delay in maker.batches.delay):
        return None
    read, stored = (host.summed(host.makers, name) for name in ("read_call_bytes", "read_bytes"))
    return None if not read or stored is None else max(0.0, 1 - stored / read)


CAUSE = Cause(
    findings={
        FROM_DISK: "A fifth or more of what the workers read came from storage, at 1 MB a second or more.",
        "network-storage": "Files are open on a network file system, and read at 1 MB a second or more.",
    },
    find=storage_findings,
    order=MACHINE,
    explains=(FROM_DISK,),
    remedies=[
        RemedyKind(
            "staging",
            "the files in /dev/shm, or on a local disk",
            "Copy the files into memory, or onto a local disk",
            ONE_LINE,
            staging,
        )
    ],
)
