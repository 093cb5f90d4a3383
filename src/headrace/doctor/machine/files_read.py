"""Files that the run read, their sizes, and folders that they could be copied to."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice

import psutil

from headrace.doctor.machine.host import SHM
from headrace.doctor.session.model import (
    FileOpens,
    Machine,
    OpenedFile,
    OpenedFolder,
    SeenFile,
    SeenFolder,
    StagingPlace,
)

MOST_LISTED = 200_000
MOST_SIZED = 2_000
"""Files whose sizes are looked up, spread over all of them: each is a call of the system."""
_AT_ONCE = 1000


@dataclass(frozen=True)
class ListedFolder:
    files: int
    bytes: int
    """Estimated where `sized` is less than `files`, 0 where that is 0."""
    sized: int
    is_whole: bool
    """True where it was listed to its end, and its bytes are known."""


def list_folder(folder: str, ends: list[str], *, is_deep: bool, is_time_left: Callable[[], bool]) -> ListedFolder:
    """List the regular files whose names end so; `is_deep` includes folders beneath it.

    What cannot be read is left out.
    """
    paths: list[str] = []
    found = _files(folder, tuple(ends), is_deep)
    while len(paths) <= MOST_LISTED and is_time_left():
        some = list(islice(found, _AT_ONCE))
        paths += some
        if len(some) < _AT_ONCE:
            break
    else:
        return ListedFolder(len(paths), 0, 0, is_whole=False)
    sizes = _sizes(_spread(paths), is_time_left)
    bytes_ = round(sum(sizes) * len(paths) / len(sizes)) if sizes else 0
    return ListedFolder(len(paths), bytes_, len(sizes), is_whole=len(sizes) > 0 or not paths)


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
    """Return files in random order: where time runs out, those that came first stand for all."""
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


NO_DATA = (".py", ".pyc", ".so", ".log")
"""Ends of names of files that are no samples, whoever opens them."""
READ_ONCE = (".json", ".jsonl", ".yaml", ".toml")
"""Ends of files that are mostly read at the start, and not for a batch."""
FEW = 4
"""Files of a folder that stand for themselves, and not for others of it that will be read later."""
COME_AGAIN = 3.0
"""Opens a file from which on those that were opened are taken to be all that are read."""


def read_files(machine: Machine, opened: FileOpens, is_time_left: Callable[[], bool]) -> list[SeenFile]:
    """Return the files of a run, those opened most first, then those that were only seen open.

    Files that are gone or empty are left out.
    """
    found = [seen for folder in opened.folders for seen in _of_folder(folder, opened.files, is_time_left)]
    found.sort(key=lambda one: -one.opens)
    places = _Places(found)
    return found + [one for one in _seen_open(machine) if not places.have(one)]


def paths_read(machine: Machine, opened: FileOpens) -> list[str]:
    """Return the paths of single files, those opened most first."""
    told = [one.path for one in opened.files if not one.path.endswith(NO_DATA)]
    return list(dict.fromkeys([*told, *(one.path for one in _seen_open(machine))]))


def _of_folder(folder: OpenedFolder, files: list[OpenedFile], is_time_left: Callable[[], bool]) -> list[SeenFile]:
    own = [one for one in files if _lies_in(one.path, folder)]
    is_closed = folder.names <= FEW or folder.opens >= COME_AGAIN * folder.names
    if folder.is_exact and len(own) == folder.names and is_closed:
        sized = [(one, _size(one.path)) for one in own if not one.path.endswith(NO_DATA)]
        return [SeenFile(one.path, size, 0, one.opens) for one, size in sized if size]
    ends = [end for end in folder.ends if end not in NO_DATA]
    found = list_folder(folder.path, ends, is_deep=folder.is_deep, is_time_left=is_time_left)
    if not found.files:
        return []
    all_ = SeenFolder(
        files=found.files,
        read=min(folder.names, found.files),
        ends=ends,
        is_deep=folder.is_deep,
        sized=found.sized,
        is_whole=found.is_whole,
    )
    return [SeenFile(folder.path, found.bytes, 0, folder.opens, all_)]


def _lies_in(path: str, folder: OpenedFolder) -> bool:
    return path.startswith(os.path.join(folder.path, "")) and (folder.is_deep or os.path.dirname(path) == folder.path)


def _seen_open(machine: Machine) -> list[SeenFile]:
    told = [(one["path"], one["seen"]) for one in machine.facts.get("files") or []]
    found = [(path, seen, _size(path)) for path, seen in told if not path.endswith((*NO_DATA, *READ_ONCE))]
    return [SeenFile(path, size, seen) for path, seen, size in found if size]


def _size(path: str) -> int | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None


@dataclass
class _Places:
    """Files that are known already, by the names that the kernel has for them: the sampler knows no others."""

    known: list[SeenFile]
    _files: dict[str, SeenFile] = field(init=False)
    _folders: list[tuple[str, SeenFile]] = field(init=False)

    def __post_init__(self) -> None:
        self._files = {os.path.realpath(one.path): one for one in self.known if one.folder is None}
        self._folders = [
            (os.path.join(os.path.realpath(one.path), ""), one) for one in self.known if one.folder is not None
        ]

    def have(self, seen: SeenFile) -> bool:
        """Return whether the file is one of them, and count it there if so."""
        it = self._files.get(seen.path) or next((one for start, one in self._folders if _has(start, one, seen)), None)
        if it is not None:
            it.seen += seen.seen
        return it is not None


def _has(start: str, one: SeenFile, seen: SeenFile) -> bool:
    if one.folder is None or not seen.path.startswith(start) or not seen.path.endswith(tuple(one.folder.ends)):
        return False
    return one.folder.is_deep or os.path.join(os.path.dirname(seen.path), "") == start


def places(machine: Machine) -> list[StagingPlace]:
    """Return places that files could be copied to, memory first: local, and no disk that turns."""
    found = [StagingPlace(SHM, free, "memory")] if (free := _free_bytes(SHM)) is not None else []
    folder = tempfile.gettempdir()
    free = _free_bytes(folder)
    if free is not None and not _is_slow(machine, folder):
        found.append(StagingPlace(folder, free, "disk"))
    return found


def _free_bytes(folder: str) -> int | None:
    """Return the free bytes; None where nothing can be written."""
    if not os.access(folder, os.W_OK):
        return None
    try:
        return int(psutil.disk_usage(folder).free)
    except OSError:
        return None


def _is_slow(machine: Machine, folder: str) -> bool:
    """Return whether it is known to lie on a network, or on a disk that turns.

    One of which nothing is known counts as fast: it is local, at least.
    """
    mounts = [one for one in machine.facts.get("mounts") or [] if folder.startswith(one["path"])]
    mount = max(mounts, key=lambda one: len(one["path"]), default=None)
    if mount is None:
        return False
    disks = machine.facts.get("disks") or {}
    return bool(mount["network"]) or disks.get(mount.get("disk"), {}).get("rotational") is True
