"""How many files a folder has, and how large they are, within bounds of entries and of time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

MOST_LISTED = 200_000
MOST_SIZED = 2_000
"""Files whose sizes are looked up, spread over all of them: each is a call of the system."""
_AT_ONCE = 1000


@dataclass(frozen=True)
class Listing:
    files: int
    bytes: int
    """Estimated where `sized` is less than `files`, 0 where that is 0."""
    sized: int
    is_whole: bool
    """Whether it was listed to its end, and its bytes are known."""


def listed(folder: str, ends: list[str], *, is_deep: bool, is_time_left: Callable[[], bool]) -> Listing:
    """The regular files whose names end so, `is_deep`: those in folders beneath it, too. What cannot be read is left
    out."""
    paths: list[str] = []
    found = _files(folder, tuple(ends), is_deep)
    while len(paths) <= MOST_LISTED and is_time_left():
        some = list(islice(found, _AT_ONCE))
        paths += some
        if len(some) < _AT_ONCE:
            break
    else:
        return Listing(len(paths), 0, 0, is_whole=False)
    sizes = _sizes(_spread(paths), is_time_left)
    bytes_ = round(sum(sizes) * len(paths) / len(sizes)) if sizes else 0
    return Listing(len(paths), bytes_, len(sizes), is_whole=len(sizes) > 0 or not paths)


def _files(folder: str, ends: tuple[str, ...], is_deep: bool) -> Iterator[str]:
    folders = [folder]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        folders += [entry.path] if is_deep else []
                    elif entry.name.endswith(ends) and entry.is_file():
                        yield entry.path
        except OSError:
            continue


def _spread(paths: list[str]) -> list[str]:
    """Where time runs out, those that came first stand for all: so not in the order of names."""
    return paths if len(paths) <= MOST_SIZED else random.Random(len(paths)).sample(paths, MOST_SIZED)


def _sizes(paths: list[str], is_time_left: Callable[[], bool]) -> list[int]:
    sizes = []
    for number, path in enumerate(paths):
        if number % 100 == 0 and not is_time_left():
            break
        try:
            sizes.append(os.stat(path).st_size)
        except OSError:
            continue
    return sizes
