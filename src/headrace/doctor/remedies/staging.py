"""The files in memory, or on a local disk."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from headrace.doctor.causes.case import WORTH, Case
from headrace.doctor.causes.storage import ROOM, Files, Staged, files_read, places_of, staged
from headrace.doctor.measure.diagnosis import StagePart
from headrace.doctor.predict.setup import Setup, StageChange
from headrace.doctor.quantities import percent, size, time
from headrace.doctor.remedies.proposal import MEDIUM, Proposal, tried, would_not
from headrace.doctor.remedies.storage import is_known, waiting_share, waiting_us

CODE = "staging"
FROM_STORAGE = 0.2
"""Share of the bytes read that must have come from storage, and not from the page cache."""


def staging(case: Case) -> Iterator[Proposal]:
    title = "the files in /dev/shm, or on a local disk"
    reading = case.stages("read", "lookup", "scan")
    share = waiting_share(case)
    if share < WORTH:
        yield would_not(CODE, title, f"Waiting for files to be read is {percent(share)} of making a batch.")
        return
    cached = _cached_share(case)
    if not is_known(case) and cached is not None and 1 - cached < FROM_STORAGE and not _is_network(case):
        yield would_not(CODE, title, f"{percent(cached)} of what is read comes from the page cache, as fast as memory.")
        return

    why = f"Workers wait {time(waiting_us(case))} a sample for files to be read, {percent(share)} of making a batch."
    files = files_read(case)
    if files is None:
        yield _tried(case, reading, title, why, None)
        return
    made = staged(case, files)
    if made is None:
        yield would_not(CODE, title, f"{why} {_no_room(case, files)}")
        return
    yield _tried(case, reading, title, f"{why}{_part(files, made)}", made)


def _tried(case: Case, reading: list[StagePart], title: str, why: str, made: Staged | None) -> Proposal:
    """`made`: where it is known which files, and where to."""
    left = 0.0 if made is None else 1 - made.share

    def change(setup: Setup) -> Setup:
        waits = {f"{one.category}:{one.label}": StageChange(wait=left) for one in reading}
        return replace(setup, storage=None, stages={**waits, **setup.stages})

    part = "" if made is None or made.share == 1 else f" of {percent(made.share)} of the reads"
    return tried(
        case,
        case.predict(change),
        code=CODE,
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


def _part(files: Files, made: Staged) -> str:
    """Nothing where all is staged."""
    if made.share == 1:
        return ""
    whole = files.size + (", and folders that are too large to list" if files.unsized else "")
    return f" Of the files that are read ({whole}), {made.files.size} fit: {percent(made.share)} of the reads."


def _no_room(case: Case, files: Files) -> str:
    if not files.sized and not files.unsized:
        return "Those that were opened are in memory already."
    if not files.sized:
        most = max((one.folder.files, one.path) for one in files.unsized if one.folder is not None)
        return f"Listing {most[1]}, of {most[0]:,} files and more, takes too long: their size is not known."
    free = ", ".join(f"{place.path} has {size(free)}" for place, free in places_of(case)) or "there is no such place"
    return f"They are {files.size}, and {ROOM:.0f} times that must fit: {free}."


def _hint(made: Staged | None) -> str:
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
