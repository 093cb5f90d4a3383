"""All of it, within a budget of time."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator

from ..session.model import Calibration, Machine, Survey
from .archives import MOST_BYTES, indexed, is_archive, members
from .files import seen_files
from .images import decoded, is_image, near
from .places import places

BUDGET_S = 2.0
MOST_IMAGES = 12


def surveyed(machine: Machine, budget_s: float = BUDGET_S) -> Survey:
    """Of this machine, which must be the one that was sampled. What cannot be looked up is left out."""
    ends = time.monotonic() + budget_s

    def is_time_left() -> bool:
        return time.monotonic() < ends

    files = seen_files(machine)
    paths = [file.path for file in files]
    archives = [path for path in paths if is_archive(path)][:1]
    calibrations: list[Calibration] = [made for path in archives for made in indexed(path)]
    images = decoded(_images(paths, archives), is_time_left)
    return Survey(files, places(machine), [*calibrations, *([] if images is None else [images])])


def _images(paths: list[str], archives: list[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names of images, and how to read each: files that were seen with their neighbours, then members of archives."""
    told = 0
    for path in (path for path in paths if is_image(path)):
        for beside in near(path):
            if told < MOST_IMAGES:
                told += 1
                yield beside, lambda beside=beside: _read(beside)  # type: ignore[misc]
    for path in archives:
        for name, data in members(path, is_image):
            if told < MOST_IMAGES:
                told += 1
                yield f"{path} {name}", lambda data=data: data  # type: ignore[misc]


def _read(path: str) -> bytes:
    """Raises OSError; ValueError for what is no plain file of an image's size."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
        raise ValueError(path)
    with open(path, "rb") as file:
        return file.read()
