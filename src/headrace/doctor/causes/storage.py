"""Storage: reads limited by disks or a network, staged copies of the files, and searches for tar members."""

from __future__ import annotations

import functools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.doctor.causes.case import LOW, MEDIUM, WORTH, Case, Change, name_of, sample_us, scaled, share_of
from headrace.doctor.causes.finding_kinds import MACHINE
from headrace.doctor.causes.proposals import Proposal, RemedyKind
from headrace.doctor.causes.remedy import factor
from headrace.doctor.edits import WantedEdit
from headrace.doctor.measure import Finding, Host
from headrace.doctor.quantities import duration, percent, size
from headrace.doctor.session.after_run import SeenFile
from headrace.doctor.session.producers import BatchProducer
from headrace.doctor.simulate import StageChange

FROM_DISK = "reads-from-disk"
"""Code of the finding that reads missed the page cache."""
LEAST_FROM_DISK = 0.2
"""Reporting threshold: share of read bytes that came from storage rather than the page cache."""
READ_BYTES_PER_S = 1 << 20
ROOM = 2.0
"""Required free space as a multiple of the files' size, which leaves space for the run."""
MEMORY = "/dev/shm/"
COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
ASSUMED = (0.0, 0.2)
SCAN_ASSUMED = (0.0, 0.5)
"""Range for header scans. Listing all members creates one object each, even with an index."""


def storage_findings(host: Host) -> Iterator[Finding]:
    """Yield limits on reads."""
    yield from _reads_from_disk(host)
    yield from _network(host)


def _reads_from_disk(host: Host) -> Iterator[Finding]:
    read, disk = host.summed(host.makers, "read_call_bytes"), host.summed(host.makers, "read_bytes")
    rate = host.mean("command_read_bytes_per_s")
    if not read or disk is None or disk < LEAST_FROM_DISK * read or rate is None or rate < READ_BYTES_PER_S:
        return
    stalled = host.mean("pressure_io_some_share")
    waited = "" if stalled is None else f"; something waited for storage {percent(stalled)} of the time"
    memory = host.fact("memory_limit_bytes") or host.fact("memory_bytes")
    share = min(disk / read, 1.0)
    yield MACHINE[FROM_DISK].found(stalled or 0.0, share=share, disk=disk, rate=rate, waited=waited, memory=memory)


def _network(host: Host) -> Iterator[Finding]:
    """Find network mounts and name their servers: the kernel's disk counters do not include them."""
    rate = host.mean("command_read_call_bytes_per_s")
    mounts: list[dict[str, Any]] = [mount for mount in host.facts.get("mounts") or [] if mount["network"]]
    if not mounts or rate is None or rate < READ_BYTES_PER_S:
        return
    named = ", ".join(f"{mount['path']} ({mount['kind']}, from {mount['source']})" for mount in mounts)
    yield MACHINE["network-storage"].found(mounts=named, rate=rate)


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


def indexed_tar(case: Case, kind: RemedyKind) -> Proposal | None:
    """Propose an index of the archive in place of `tarfile`'s search."""
    lookups, scans = case.stages("lookup", label="tarfile"), case.stages("scan", label="tarfile")
    searching = [*lookups, *scans]
    if not searching and not case.stages("read", label="tarfile"):
        return None
    if case.facts.get("iterable") is True and share_of(lookups) < WORTH:
        return None  # a stream reads members in sequence without look-ups
    share = share_of(searching)
    if share < WORTH:
        return None
    read = [] if case.session.survey is None else [one.path for one in case.session.survey.files]
    archives = [path for path in read if path.endswith((".tar", *COMPRESSED))]
    if archives and all(path.endswith(COMPRESSED) for path in archives):
        return None  # members can be found only by unpacking what is before
    code, timed = kind.code, case.calibrations
    of_lookups = factor(timed, code, "look-up", assumed=ASSUMED, present_us=sample_us(lookups))
    of_scans = factor(timed, code, "header", assumed=SCAN_ASSUMED)
    parts = [part for part in ((lookups, of_lookups), (scans, of_scans)) if share_of(part[0]) >= WORTH]
    bases = " ".join(dict.fromkeys(left.basis for _, left in parts))

    def leaving(which: str) -> Change:
        """Return the change that scales each stage by its factor's `least`, `usual` or `most`."""
        changes = [scaled(stages)(getattr(left, which)) for stages, left in parts]
        return lambda setup: functools.reduce(lambda before, change: change(before), changes, setup)

    return kind.tried(
        case,
        leaving("usual"),
        prediction=case.predict_between(*(leaving(which) for which in ("usual", "least", "most"))),
        why=f"tarfile finds members by reading its way through the archive: {duration(sample_us(searching))} a sample, "
        f"{percent(share)} of making a batch. {bases}".rstrip(),
        confidence=MEDIUM if all(left.is_measured for _, left in parts) else LOW,
        wanted=WantedEdit(indexed_tar=True),
        injects=True,
    )
