"""The files in memory, or on a local disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..analyse.words import percent, size, time
from ..predict.setup import Setup, StageChange
from ..session.model import Machine
from .case import WORTH, Case
from .proposal import MEDIUM, Proposal, tried, would_not

CODE = "staging"
FROM_STORAGE = 0.2
"""Share of the bytes read that must have come from storage, and not from the page cache."""


def staging(case: Case) -> Iterator[Proposal]:
    title = "the files in /dev/shm, or on a local disk"
    reading = case.stages("read", "lookup", "scan")
    waiting_us = sum(max(one.wall_us - (one.cpu_us or 0.0), 0.0) for one in case.stages("read"))
    whole_us = sum(one.wall_us for one in case.making.stages)
    share = waiting_us / whole_us if whole_us else 0.0
    if share < WORTH:
        yield would_not(CODE, title, f"Waiting for files to be read is {percent(share)} of making a batch.")
        return
    cached = _cached_share(case)
    if cached is not None and 1 - cached < FROM_STORAGE and not _is_network(case):
        yield would_not(CODE, title, f"{percent(cached)} of what is read comes from the page cache, as fast as memory.")
        return

    def change(setup: Setup) -> Setup:
        waits = {f"{one.category}:{one.label}": StageChange(wait=0.0) for one in reading}
        return replace(setup, storage=None, stages={**waits, **setup.stages})

    paths, place = _paths(case), None
    whole = sum(bytes_ for _, bytes_ in paths)
    place = _place(case, whole)
    why = f"Workers wait {time(waiting_us)} a sample for files to be read, {percent(share)} of making a batch."
    if paths and place is None:
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
        changes=None if place is None else {"staging": _copies(paths, place)},
    )


def _cached_share(case: Case) -> float | None:
    """Of the bytes that makers read."""
    if case.host is None:
        return None
    read, stored = (case.host.summed(case.host.makers, name) for name in ("read_call_bytes", "read_bytes"))
    return None if not read or stored is None else max(0.0, 1 - stored / read)


def _is_network(case: Case) -> bool:
    return case.host is not None and any(mount.get("network") for mount in case.host.facts.get("mounts") or [])


def _paths(case: Case) -> list[tuple[str, int]]:
    """Large files that were seen open, with their sizes: archives, mostly. A folder of small ones is not found so."""
    machine: Machine | None = None if case.host is None else case.host.machine
    files: list[dict[str, Any]] = [] if machine is None else machine.facts.get("files") or []
    return [(one["path"], one["bytes"]) for one in files if one.get("bytes")]


def _place(case: Case, whole: float) -> str | None:
    """The first that has room for it twice over, so that the run keeps some: memory before disks."""
    if case.host is None or not whole:
        return None
    total, used = case.host.fact("shm_bytes"), case.host.peak("shm_used_bytes")
    free = min(case.host.known("memory_available_bytes"), default=0.0)
    if total is not None and 2 * whole <= min(total - (used or 0), free):
        return "/dev/shm"
    disks: list[dict[str, Any]] = case.host.facts.get("local_disks") or []
    return next((one["path"] for one in disks if 2 * whole <= one["free_bytes"]), None)


def _copies(paths: list[tuple[str, int]], place: str) -> list[list[str]]:
    return [[path, os.path.join(place, "headrace-staged", path.lstrip(os.sep))] for path, _ in paths]
