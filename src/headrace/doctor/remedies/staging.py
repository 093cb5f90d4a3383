"""The files in memory, or on a local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

from ..analyse.words import percent, size, time
from ..predict.setup import Setup, StageChange
from ..session.model import Place, SeenFile
from .case import WORTH, Case
from .proposal import MEDIUM, Proposal, tried, would_not
from .storage import is_known, waiting_share, waiting_us

CODE = "staging"
FROM_STORAGE = 0.2
"""Share of the bytes read that must have come from storage, and not from the page cache."""
ROOM = 2.0
"""How many times the files must fit into a place, so that the run has some left."""
STAGED = "headrace-staged"
"""Folder of the copies."""


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

    def change(setup: Setup) -> Setup:
        waits = {f"{one.category}:{one.label}": StageChange(wait=0.0) for one in reading}
        return replace(setup, storage=None, stages={**waits, **setup.stages})

    files = _files(case)
    whole = sum(one.bytes for one in files)
    place = _place(case, whole)
    why = f"Workers wait {time(waiting_us(case))} a sample for files to be read, {percent(share)} of making a batch."
    if files and place is None:
        yield would_not(CODE, title, f"{why} The files seen are {size(whole)}, and no memory or local disk has room.")
        return
    yield tried(
        case,
        case.predict(change),
        code=CODE,
        title=title if place is None else f"the files in {place}",
        why=why,
        confidence=MEDIUM,
        change=change,
        costs=[f"{size(whole)} in {place}, copied before each run"] if place is not None else ["room for the files"],
        hint=f"cp -r DATA {place or '/dev/shm'}/, and give the script that path",
        changes=None if place is None else {"staging": _copies(files, place)},
    )


def _cached_share(case: Case) -> float | None:
    """Of the bytes that makers read."""
    if case.host is None:
        return None
    read, stored = (case.host.summed(case.host.makers, name) for name in ("read_call_bytes", "read_bytes"))
    return None if not read or stored is None else max(0.0, 1 - stored / read)


def _is_network(case: Case) -> bool:
    return case.host is not None and any(mount.get("network") for mount in case.host.facts.get("mounts") or [])


def _files(case: Case) -> list[SeenFile]:
    """Files that were seen open: archives, mostly. A folder of small ones is not found so."""
    survey = case.session.survey
    return [] if survey is None else survey.files


def _place(case: Case, whole: float) -> str | None:
    """The first that has room for it twice over, so that the run keeps some: memory before disks."""
    survey = case.session.survey
    places = [] if survey is None else survey.places
    return next((one.path for one in places if whole and ROOM * whole <= _free_bytes(case, one)), None)


def _free_bytes(case: Case, place: Place) -> float:
    """What lies in memory must fit beside what the run itself holds."""
    memory = [] if case.host is None or place.kind != "memory" else case.host.known("memory_available_bytes")
    return min([place.free_bytes, *memory])


def _copies(files: list[SeenFile], place: str) -> list[list[str]]:
    """Each by its whole path, so that no two meet."""
    return [[one.path, os.path.join(place, STAGED, one.path.lstrip(os.sep))] for one in files]
