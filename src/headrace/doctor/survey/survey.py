"""All of it, within a budget of time."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from itertools import chain

from headrace.doctor.machine.files_read import paths, read_files
from headrace.doctor.machine.survey import decoded, is_image, near
from headrace.doctor.session.model import Calibration, Machine, Opened, Survey
from headrace.doctor.survey.archives import MOST_BYTES, indexed, is_archive, members
from headrace.doctor.survey.places import places

BUDGET_S = 2.0
LISTING = 0.5
"""Share of it that folders may take."""
MOST_IMAGES = 12


def surveyed(machine: Machine, opened: Opened, budget_s: float = BUDGET_S) -> Survey:
    """Of this machine, which must be the one that was sampled, and what was opened there. What cannot be looked up is
    left out."""
    began = time.monotonic()
    files = read_files(machine, opened, _time_left(began + LISTING * budget_s))
    is_time_left = _time_left(began + budget_s)
    single = paths(machine, opened)
    archives = [path for path in single if is_archive(path)][:1]
    calibrations: list[Calibration] = [made for path in archives for made in indexed(path)]
    images = decoded(_images(single, archives), is_time_left)
    return Survey(files, places(machine), [*calibrations, *([] if images is None else [images])])


def _time_left(end: float) -> Callable[[], bool]:
    return lambda: time.monotonic() < end


def _images(single: list[str], archives: list[str]) -> Iterator[tuple[str, Callable[[], bytes]]]:
    """Names of images, and how to read each: files that were read, their neighbours, then members of archives."""
    own = [path for path in single if is_image(path)]
    spread = own[:: max(1, len(own) // MOST_IMAGES)][:MOST_IMAGES]
    told: set[str] = set()
    for path in chain(spread, chain.from_iterable(near(path) for path in own)):
        if len(told) == MOST_IMAGES:
            return
        if path not in told:
            told.add(path)
            yield path, lambda path=path: _read(path)  # type: ignore[misc]
    for path in archives:
        for name, data in members(path, is_image):
            if len(told) == MOST_IMAGES:
                return
            told.add(f"{path} {name}")
            yield f"{path} {name}", lambda data=data: data  # type: ignore[misc]


def _read(path: str) -> bytes:
    """Raises OSError; ValueError for what is no plain file of an image's size."""
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
        raise ValueError(path)
    with open(path, "rb") as file:
        return file.read()
