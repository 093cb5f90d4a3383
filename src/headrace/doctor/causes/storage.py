"""Storage: slow reads, staging files in memory, and tar look-ups."""

from __future__ import annotations

import glob
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from headrace.doctor.causes.case import LOW, MEDIUM, WORTH, Case, Change, Proposal, scaled, share_of, tried, would_not
from headrace.doctor.causes.remedy import Factor, factor, over
from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.measure.diagnosis import Finding, StagePart
from headrace.doctor.measure.host import Host
from headrace.doctor.quantities import number, percent, size, time
from headrace.doctor.session.model import BatchProducer, SeenFile, StagingPlace
from headrace.doctor.simulate.prediction import Prediction
from headrace.doctor.simulate.work import FeedSetup, StageChange

# -- from doctor/remedies/staged.py: Which of the files that are read to copy, and where: all of them where they fit,
# else what is read most for its
# size.


ROOM = 2.0
"""How many times the files must fit into a place, so that the run has some left."""
STAGED = "headrace-staged"
"""Folder of the copies."""
_MEMORY = "/dev/shm/"


@dataclass(frozen=True)
class FilesRead:
    """That makers read, and that are not in memory anyway."""

    sized: list[SeenFile]
    unsized: list[SeenFile]
    """Folders that were not listed to their end."""
    rest: int
    """Opens of others, of which no more is known."""

    @property
    def bytes(self) -> int:
        return sum(one.bytes for one in self.sized)

    @property
    def size(self) -> str:
        """In words, with what it is estimated from."""
        guessed = [one.folder for one in self.sized if one.folder is not None and one.folder.sized < one.folder.files]
        if not guessed:
            return size(self.bytes)
        sizes, files = sum(one.sized for one in guessed), sum(one.files for one in guessed)
        return f"about {size(self.bytes)} (by the sizes of {sizes:,} of {files:,} files)"

    def share(self, some: list[SeenFile]) -> float:
        """Of what is read, in these. By opens; by bytes where a file stays open while others come and go, since then
        opens say nothing of what is read."""
        every = [*self.sized, *self.unsized]
        if any(_is_held(one) for one in every):
            whole = sum(one.bytes for one in every)
            return sum(one.bytes for one in some) / whole if whole else 0.0
        whole = sum(one.opens for one in every) + self.rest
        return sum(one.opens for one in some) / whole if whole else 0.0


@dataclass(frozen=True)
class StagedFiles:
    """Some of them, in a place that has room."""

    files: FilesRead
    """What these are."""
    place: str
    share: float
    """Of what is read."""

    def pairs(self) -> list[list[object]]:
        """Of `changes`, docs/doctor/remedies.md: each copy by its whole path, so that no two meet."""
        return [self._pair(one) for one in self.files.sized]

    def _pair(self, one: SeenFile) -> list[object]:
        pair: list[object] = [one.path, os.path.join(self.place, STAGED, one.path.lstrip(os.sep))]
        if one.folder is None:
            return pair
        start = "**/*" if one.folder.is_deep else "*"
        ends = [""] if "" in one.folder.ends else one.folder.ends
        return [*pair, [start + glob.escape(end) for end in ends]]


def files_read(case: Case) -> FilesRead | None:
    """None where it is not known what is read."""
    survey = case.session.survey
    if survey is None or not survey.files:
        return None
    found = [one for one in survey.files if not one.path.startswith(_MEMORY)]
    sized = [one for one in found if one.folder is None or one.folder.is_whole]
    unsized = [one for one in found if one.folder is not None and not one.folder.is_whole]
    return FilesRead(sized, unsized, case.session.opened.rest)


def staged(case: Case, files: FilesRead) -> StagedFiles | None:
    """Into the first place that takes all of them, memory before disks, else into the one that takes the most. None
    where none takes any."""
    places = places_of(case)
    found = [made for place, free in places if (made := _filled(files, place, free)) is not None]
    return max(found, key=lambda one: one.share, default=None)


def places_of(case: Case) -> list[tuple[StagingPlace, float]]:
    """With the bytes that are free there."""
    survey = case.session.survey
    return [] if survey is None else [(one, _free_bytes(case, one)) for one in survey.places]


def _filled(files: FilesRead, place: StagingPlace, free: float) -> StagedFiles | None:
    some, left = [], free / ROOM
    for one in sorted(files.sized, key=lambda one: -files.share([one]) / one.bytes if one.bytes else 0.0):
        if one.bytes <= left:
            some.append(one)
            left -= one.bytes
    if not some:
        return None
    return StagedFiles(FilesRead(some, [], 0), place.path, files.share(some))


def _is_held(one: SeenFile) -> bool:
    """One that is opened for each of its reads is seen open less often than it is opened."""
    return one.folder is None and one.seen > one.opens


def _free_bytes(case: Case, place: StagingPlace) -> float:
    """What lies in memory must fit beside what the run itself holds."""
    memory = [] if case.host is None or place.kind != "memory" else case.host.known("memory_available_bytes")
    return min([place.free_bytes, *memory])


# -- from doctor/remedies/storage.py: How long workers wait for storage, and not for a core.


def waiting_us(case: Case) -> float:
    """A sample's, in reading: what it does not compute, less its part of what the workers were ready to run and had no
    core, as far as that was measured."""
    idle = sum(max(one.wall_us - (one.cpu_us or 0.0), 0.0) for one in case.stages("read"))
    return idle * _left(case)


def waiting_share(case: Case) -> float:
    """Of making a batch."""
    whole = sum(one.wall_us for one in case.making.stages)
    return waiting_us(case) / whole if whole else 0.0


def is_known(case: Case) -> bool:
    """Whether waiting for a core was told apart."""
    return any(one is not None for maker in _makers(case) for one in maker.batches.delay)


def _left(case: Case) -> float:
    """Share of the makers' idle time that no core was missing in."""
    waited, idle = 0.0, 0.0
    for maker in _makers(case):
        batches = maker.batches
        for row, delay in enumerate(batches.delay):
            wall = batches.fetched[row] - batches.start[row]
            idle += max(wall - sum(cpu for _, _, _, cpu in batches.stages[row]), 0)
            waited += delay or 0
    return max(1 - waited / idle, 0.0) if idle > 0 else 1.0


def _makers(case: Case) -> Iterator[BatchProducer]:
    return (maker for maker in case.session.makers if maker.trainer == case.view.trainer.pid)


# -- from doctor/remedies/staging.py: The files in memory, or on a local disk.


STAGING = "staging"
FROM_STORAGE = 0.2
"""Share of the bytes read that must have come from storage, and not from the page cache."""


def staging(case: Case) -> Iterator[Proposal]:
    title = "the files in /dev/shm, or on a local disk"
    reading = case.stages("read", "lookup", "scan")
    share = waiting_share(case)
    if share < WORTH:
        yield would_not(STAGING, title, f"Waiting for files to be read is {percent(share)} of making a batch.")
        return
    cached = _cached_share(case)
    if not is_known(case) and cached is not None and 1 - cached < FROM_STORAGE and not _is_network(case):
        yield would_not(
            STAGING, title, f"{percent(cached)} of what is read comes from the page cache, as fast as memory."
        )
        return

    why = f"Workers wait {time(waiting_us(case))} a sample for files to be read, {percent(share)} of making a batch."
    files = files_read(case)
    if files is None:
        yield _tried(case, reading, title, why, None)
        return
    made = staged(case, files)
    if made is None:
        yield would_not(STAGING, title, f"{why} {_no_room(case, files)}")
        return
    yield _tried(case, reading, title, f"{why}{_part(files, made)}", made)


def _tried(case: Case, reading: list[StagePart], title: str, why: str, made: StagedFiles | None) -> Proposal:
    """`made`: where it is known which files, and where to."""
    left = 0.0 if made is None else 1 - made.share

    def change(setup: FeedSetup) -> FeedSetup:
        waits = {f"{one.category}:{one.label}": StageChange(wait=left) for one in reading}
        return replace(setup, storage=None, stages={**waits, **setup.stages})

    part = "" if made is None or made.share == 1 else f" of {percent(made.share)} of the reads"
    return tried(
        case,
        case.predict(change),
        code=STAGING,
        title=title if made is None else f"the files{part} in {made.place}",
        why=why,
        confidence=MEDIUM,
        change=change,
        costs=["room for the files"]
        if made is None
        else [f"{made.files.size} in {made.place}, copied before each run"],
        hint=_hint(made),
        changes=None if made is None else {"staging": made.pairs()},
    )


def _part(files: FilesRead, made: StagedFiles) -> str:
    """Nothing where all is staged."""
    if made.share == 1:
        return ""
    whole = files.size + (", and folders that are too large to list" if files.unsized else "")
    return f" Of the files that are read ({whole}), {made.files.size} fit: {percent(made.share)} of the reads."


def _no_room(case: Case, files: FilesRead) -> str:
    if not files.sized and not files.unsized:
        return "Those that were opened are in memory already."
    if not files.sized:
        most = max((one.folder.files, one.path) for one in files.unsized if one.folder is not None)
        return f"Listing {most[1]}, of {most[0]:,} files and more, takes too long: their size is not known."
    free = ", ".join(f"{place.path} has {size(free)}" for place, free in places_of(case)) or "there is no such place"
    return f"They are {files.size}, and {ROOM:.0f} times that must fit: {free}."


def _hint(made: StagedFiles | None) -> str:
    place = "/dev/shm" if made is None else made.place
    if made is None or len(made.files.sized) != 1:
        return f"copy the files that it reads to {place} before each run, and give the script that path"
    return f"cp -r {shlex.quote(made.files.sized[0].path)} {place}/, and give the script that path"


def _cached_share(case: Case) -> float | None:
    """Of the bytes that makers read."""
    if case.host is None:
        return None
    read, stored = (case.host.summed(case.host.makers, name) for name in ("read_call_bytes", "read_bytes"))
    return None if not read or stored is None else max(0.0, 1 - stored / read)


def _is_network(case: Case) -> bool:
    return case.host is not None and any(mount.get("network") for mount in case.host.facts.get("mounts") or [])


# -- from doctor/analyse/environment_storage.py: Findings about storage: where reads come from, and whether the disks
# keep up.


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


# -- from doctor/remedies/indexed_tar.py: An index of the archive in place of `tarfile`'s search.


INDEXED_TAR = "indexed-tar"
PACKED = (".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".tar.zst")
ASSUMED = (0.0, 0.2)
SCAN_ASSUMED = (0.0, 0.5)
"""Listing all members makes an object of each, whoever knows where they are."""


def indexed_tar(case: Case) -> Iterator[Proposal]:
    title = "an index of the tar in place of tarfile's search"
    lookups, scans = case.stages("lookup", label="tarfile"), case.stages("scan", label="tarfile")
    searching = [*lookups, *scans]
    if not searching and not case.stages("read", label="tarfile"):
        return
    share = share_of(searching)
    if share < WORTH:
        yield would_not(INDEXED_TAR, title, f"Looking members up is {percent(share)} of making a batch.")
        return
    per_lookup = sum(one.wall_us for one in lookups)
    packed = _packed(case)
    if packed is not None:
        yield would_not(
            INDEXED_TAR, title, f"{packed} is compressed: members can be found only by unpacking what is before."
        )
        return
    of_lookups = factor(case.calibrations, INDEXED_TAR, "look-up", assumed=ASSUMED, present_us=per_lookup)
    of_scans = factor(case.calibrations, INDEXED_TAR, "header", assumed=SCAN_ASSUMED)
    parts = [part for part in ((lookups, of_lookups), (scans, of_scans)) if share_of(part[0]) >= WORTH]
    bases = " ".join(dict.fromkeys(left.basis for _, left in parts))
    change = _leaving([(stages, left.usual) for stages, left in parts])
    yield tried(
        case,
        _predicted(case, parts),
        code=INDEXED_TAR,
        title=title,
        why=f"tarfile finds members by reading its way through the archive: "
        f"{time(sum(one.wall_us for one in searching))} a sample, {percent(share)} of making a batch. {bases}",
        confidence=MEDIUM if all(left.is_measured for _, left in parts) else LOW,
        change=change,
        costs=["an index beside the archive, made once by one pass over its headers"],
        wanted=WantedEdit(indexed_tar=True),
        hint="headrace.IndexedTar(path) in place of tarfile.open(path)",
        changes={"indexed_tar": True},
    )


def _packed(case: Case) -> str | None:
    """The compressed archive that is read, where no other one is."""
    read = [] if case.session.survey is None else [one.path for one in case.session.survey.files]
    archives = [path for path in read if path.endswith((".tar", *PACKED))]
    return archives[0] if archives and all(path.endswith(PACKED) for path in archives) else None


def _predicted(case: Case, parts: list[tuple[list[StagePart], Factor]]) -> Prediction | None:
    """The interval spans what is left of each stage."""

    def at(pick: Callable[[Factor], float]) -> Prediction | None:
        return case.predict(_leaving([(stages, pick(left)) for stages, left in parts]))

    return over(at(lambda left: left.usual), at(lambda left: left.least), at(lambda left: left.most))


def _leaving(parts: list[tuple[list[StagePart], float]]) -> Change:
    def change(setup: FeedSetup) -> FeedSetup:
        for stages, left in parts:
            setup = scaled(stages)(left)(setup)
        return setup

    return change
