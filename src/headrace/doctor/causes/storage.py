"""Storage: reads limited by disks, and members of an archive that `tarfile` searches for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import LOW, WORTH, Case, sample_us, share_of
from headrace.doctor.causes.cause import MACHINE, Cause, Proposal, RemedyKind, Run, of_machines
from headrace.doctor.causes.remedy import ONE_LINE
from headrace.doctor.causes.stages import category
from headrace.doctor.measure import Finding, Host
from headrace.doctor.quantities import duration, percent, size
from headrace.doctor.simulate import Change, chained, scaled, untimed

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


COMPRESSED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
ASSUMED = (0.0, 0.05)
"""Share of a search that remains: a look-up in an index takes some microseconds."""
SCAN_ASSUMED = (0.0, 0.2)
"""Share of a header scan that remains: listing all members creates one object each, even with an index."""


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
    files = {path for maker in case.session.makers for batch in maker.first for path in batch.files}
    archives = [path for path in files if path.endswith((".tar", *COMPRESSED))]
    if archives and all(path.endswith(COMPRESSED) for path in archives):
        return None  # members can be found only by unpacking what is before
    factors = ((lookups, untimed(*ASSUMED)), (scans, untimed(*SCAN_ASSUMED)))
    parts = [part for part in factors if share_of(part[0]) >= WORTH]
    bases = " ".join(dict.fromkeys(left.basis for _, left in parts))

    def leaving(which: str) -> Change:
        """Return the change that scales each stage by its factor's `least`, `usual` or `most`."""
        return chained(scaled(stages)(getattr(left, which)) for stages, left in parts)

    return kind.tried(
        case,
        leaving("usual"),
        prediction=case.predict_between(*(leaving(which) for which in ("usual", "least", "most"))),
        why=f"tarfile finds members by reading its way through the archive: {duration(sample_us(searching))} a sample, "
        f"{percent(share)} of making a batch. {bases}".rstrip(),
        confidence=LOW,
        injects=True,
    )


SEARCH = Cause(
    remedies=[
        RemedyKind(
            "indexed-tar",
            "an index of the tar in place of tarfile's search",
            ONE_LINE,
            indexed_tar,
            hint="headrace.IndexedTar(path) in place of tarfile.open(path), of an archive that is not compressed",
            costs=("an index alongside the archive, made once by one pass over its headers",),
            key="indexed_tar",
            value="`true`",
        )
    ]
)
