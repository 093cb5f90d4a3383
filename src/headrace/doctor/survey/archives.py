"""Archives: their first members, and what it takes to go to one whose place is known."""

from __future__ import annotations

import os
import tarfile
import time
from collections.abc import Callable, Iterator

from ..session.model import Calibration

ENDS = (".tar",)
MOST_MEMBERS = 64
MOST_BYTES = 32 << 20
"""Of a member: larger ones are no images."""


def is_archive(path: str) -> bool:
    return path.endswith(ENDS)


def members(path: str, wants: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of the first ones that are wanted: those of a whole archive would take a pass over it."""
    try:
        with tarfile.open(path, "r:") as tar:
            for member in _first(tar):
                if member.isreg() and member.size <= MOST_BYTES and wants(member.name):
                    file = tar.extractfile(member)
                    if file is not None:
                        yield member.name, file.read()
    except (OSError, tarfile.TarError):
        return


def look_ups(path: str) -> Calibration | None:
    """What an index does for a look-up: find the name in a table, read the header there. None where it is no tar."""
    try:
        with tarfile.open(path, "r:") as tar:
            places = {member.name: member.offset for member in _first(tar)}
        with open(path, "rb", buffering=0) as file:
            times = {name: _look_up_us(file.fileno(), places, name) for name in places}
    except (OSError, tarfile.TarError):
        return None
    if not times:
        return None
    return Calibration("indexed-tar", "look-up", [f"{path} {name}" for name in times], other_us=list(times.values()))


def _first(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for _ in range(MOST_MEMBERS):
        member = tar.next()
        if member is None:
            return
        yield member


def _look_up_us(descriptor: int, places: dict[str, int], name: str) -> float:
    began = time.perf_counter_ns()
    header = os.pread(descriptor, tarfile.BLOCKSIZE, places[name])
    header.rstrip(b"\0").startswith(name.encode())
    return (time.perf_counter_ns() - began) / 1000
