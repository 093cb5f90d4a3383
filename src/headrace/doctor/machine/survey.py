"""Survey after the run: its files, timed under each remedy."""

from __future__ import annotations

import os
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from headrace.doctor.probe import index_of, tar_info
from headrace.doctor.session.after_run import Calibration, MachineSurvey
from headrace.doctor.session.model import Machine
from headrace.doctor.session.producers import FileOpens

IMAGE_ENDS = (".jpg", ".jpeg", ".png")
"""Suffixes of images that the native decoder decodes itself; it leaves others to Pillow."""
NO_DATA = (".py", ".pyc", ".so", ".log")
"""Suffixes of files that are no samples, whoever opens them."""
READ_ONCE = (".json", ".jsonl", ".yaml", ".toml")
"""Suffixes of files that are mostly read once at the start, not for batches."""
TimeImages = Callable[[Iterable[tuple[str, Callable[[], bytes]]], Callable[[], bool]], Calibration | None]
"""Times images, each given by name and read function, while time is left."""


def is_image(path: str) -> bool:
    return path.lower().endswith(IMAGE_ENDS)


INDEXED_TAR, LOOK_UP, HEADER = "indexed-tar", "look-up", "header"
ARCHIVE_ENDS = (".tar",)
MOST_MEMBERS = 64
MOST_MEMBER_BYTES = 32 << 20
"""Size of a member above which it is no image."""


def members(path: str, wants: Callable[[str], bool]) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes of wanted members among the first; more would take a pass over the archive."""
    try:
        with tarfile.open(path, "r:") as tar:
            for member in islice(tar, MOST_MEMBERS):
                if member.isreg() and member.size <= MOST_MEMBER_BYTES and wants(member.name):
                    file = tar.extractfile(member)
                    if file is not None:
                        yield member.name, file.read()
    except (OSError, tarfile.TarError):
        return


def indexed(path: str) -> list[Calibration]:
    """Time look-ups and listing in an index, against tarfile, which reads a header per member.

    The first members are timed, in an archive with their names. Empty for a file that is no tar, or without the index.
    """
    try:
        with tarfile.open(path, "r:") as tar, tempfile.TemporaryDirectory(prefix="headrace-doctor-") as folder:
            header_us: dict[str, float] = {}
            members = islice(tar, MOST_MEMBERS)
            while (timed := _timed(lambda: next(members, None)))[0] is not None:
                header_us[timed[0].name] = timed[1]
            names = list(header_us)
            look_up_us, list_us = _with_index(Path(folder), names)
    except (OSError, tarfile.TarError, ImportError):
        return []
    files = [f"{path} {name}" for name in names]
    if not files:
        return []
    return [
        Calibration(INDEXED_TAR, LOOK_UP, files, other_us=look_up_us),
        Calibration(INDEXED_TAR, HEADER, files, present_us=list(header_us.values()), other_us=list_us),
    ]


def _with_index(folder: Path, names: list[str]) -> tuple[list[float], list[float]]:
    """Return the microseconds per name, of look-ups and of listing."""
    path = folder / "members.tar"
    with tarfile.open(path, "w") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    index = index_of(str(path), str(folder))
    with tarfile.open(path) as tar:
        names_left, members = iter(names), iter(index)
        look_ups = [_timed(lambda: tar_info(tar, index.getmember(next(names_left))))[1] for _ in names]
        listed = [_timed(lambda: tar_info(tar, next(members)))[1] for _ in names]
    return look_ups, listed


def _timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call and its microseconds."""
    began = time.perf_counter_ns()
    result = call()
    return result, (time.perf_counter_ns() - began) / 1000


BUDGET_S = 2.0
VIEWS = 0.5
"""Additional share of the budget for views of images."""
MOST_IMAGES = 12


def surveyed(
    machine: Machine, opened: FileOpens, time_views: TimeImages | None = None, *, budget_s: float = BUDGET_S
) -> MachineSurvey:
    """Survey this machine, which must be the one that was sampled, and the files opened there.

    `time_views` times the script's own image processing; None if unknown. Unreadable files are left out.
    """
    single = paths_read(machine, opened)
    archives = [path for path in single if path.endswith(ARCHIVE_ENDS)][:1]
    calibrations: list[Calibration] = [made for path in archives for made in indexed(path)]
    viewed = None
    if time_views is not None:
        until = time.monotonic() + VIEWS * budget_s
        viewed = time_views(islice(_images(single, archives), MOST_IMAGES), lambda: time.monotonic() < until)
    calibrations += [] if viewed is None else [viewed]
    return MachineSurvey(calibrations)


def paths_read(machine: Machine, opened: FileOpens) -> list[str]:
    """Return the paths of files, by opens in descending order, then of files that were only seen open."""
    seen = (one["path"] for one in machine.facts.get("files") or [])
    found = [path for path in seen if not path.endswith(READ_ONCE) and os.path.isfile(path)]
    told = [one.path for one in opened.files]
    return [path for path in dict.fromkeys([*told, *found]) if not path.endswith(NO_DATA)]


def _images(single: list[str], archives: list[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Yield images and their read functions: files that were read, then members of archives."""
    own = [path for path in single if is_image(path)]
    for path in own[:: max(1, len(own) // MOST_IMAGES)][:MOST_IMAGES]:
        yield path, partial(_read, path)
    for path in archives:
        for name, data in members(path, is_image):
            yield f"{path} {name}", partial(bytes, data)


def _read(path: str) -> bytes:
    """Read a file. Raises OSError, or ValueError if it is no regular file of an image's size."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_MEMBER_BYTES:
        raise ValueError(path)
    with open(path, "rb") as file:
        return file.read()
