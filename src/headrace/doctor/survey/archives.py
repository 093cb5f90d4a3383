"""Archives: their first members, and what it takes to find and to list them with an index."""

from __future__ import annotations

import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from headrace.doctor.probe.remedies.files import index_of, tar_info
from headrace.doctor.session.model import Calibration

CODE, LOOK_UP, HEADER = "indexed-tar", "look-up", "header"
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


def indexed(path: str) -> list[Calibration]:
    """What an index takes to find a member by its name, and to list one, which tarfile reads a header for. Found out on
    the first members, in an archive of their names. Empty where it is no tar, or where there is no index."""
    try:
        with tarfile.open(path, "r:") as tar, tempfile.TemporaryDirectory(prefix="headrace-doctor-") as folder:
            names, header_us = _headers(tar)
            look_up_us, list_us = _with_index(Path(folder), names)
    except (OSError, tarfile.TarError, ImportError):
        return []
    files = [f"{path} {name}" for name in names]
    if not files:
        return []
    return [
        Calibration(CODE, LOOK_UP, files, other_us=look_up_us),
        Calibration(CODE, HEADER, files, present_us=header_us, other_us=list_us),
    ]


def _first(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for _ in range(MOST_MEMBERS):
        member = tar.next()
        if member is None:
            return
        yield member


def _headers(tar: tarfile.TarFile) -> tuple[list[str], list[float]]:
    """Names, each once, and how long it took to read each header."""
    times: dict[str, float] = {}
    members = _first(tar)
    while True:
        member, us = _timed(lambda: next(members, None))
        if member is None:
            return list(times), list(times.values())
        times[member.name] = us


def _with_index(folder: Path, names: list[str]) -> tuple[list[float], list[float]]:
    """Of each name: to look it up, and to list it."""
    path = folder / "members.tar"
    with tarfile.open(path, "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    index = index_of(str(path), str(folder))
    with tarfile.open(path) as tar:
        look_ups = [_timed(partial(_look_up, tar, index, name))[1] for name in names]
        members = iter(index)
        listed = [_timed(lambda: tar_info(tar, next(members)))[1] for _ in names]
    return look_ups, listed


def _look_up(tar: tarfile.TarFile, index: Any, name: str) -> Any:
    return tar_info(tar, index.getmember(name))


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and how many microseconds it took."""
    began = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - began) / 1000
