"""Files that the run read, their sizes, and folders that they could be copied to."""

from __future__ import annotations

import os
import random
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

import psutil

from headrace.doctor.machine.host import SHM
from headrace.doctor.session.after_run import SeenFile, SeenFolder, StagingPlace
from headrace.doctor.session.model import Machine
from headrace.doctor.session.producers import FileOpens, OpenedFile, OpenedFolder

MOST_LISTED = 200_000
MOST_SIZED = 2_000
"""Maximum number of files to stat, spread over all of them."""
_AT_ONCE = 1000
NO_DATA = (".py", ".pyc", ".so", ".log")
"""Suffixes of files that are no samples, whoever opens them."""
READ_ONCE = (".json", ".jsonl", ".yaml", ".toml")
"""Suffixes of files that are mostly read once at the start, not for batches."""
FEW = 4
"""Maximum number of files in a folder that are taken to be all of its files read."""
COME_AGAIN = 3.0
"""Opens per file above which the opened files are taken to be all that are read."""


def list_folder(folder: OpenedFolder, *, is_time_left: Callable[[], bool]) -> SeenFile:
    """List the regular files of a folder with its suffixes; a deep folder includes subfolders.

    Unreadable entries are left out. Bytes are estimated if fewer files were sized than listed, and 0 if none was. Sizes
    are read in random order: if time runs out, the first ones represent all.
    """
    ends = [end for end in folder.ends if end not in NO_DATA]
    paths: list[str] = []
    found = _files(folder.path, tuple(ends), folder.is_deep)
    is_listed = False
    while not is_listed and len(paths) <= MOST_LISTED and is_time_left():
        some = list(islice(found, _AT_ONCE))
        paths += some
        is_listed = len(some) < _AT_ONCE
    sizes: list[int] = []
    most = MOST_SIZED if is_listed else 0
    spread = paths if len(paths) <= most else random.Random(len(paths)).sample(paths, most)
    for number, path in enumerate(spread):
        if number % 100 == 0 and not is_time_left():
            break
        with suppress(OSError):
            sizes.append(os.stat(path).st_size)
    seen = SeenFolder(
        files=len(paths),
        read=min(folder.opens, len(paths)),
        ends=ends,
        is_deep=folder.is_deep,
        sized=len(sizes),
        is_whole=is_listed and (len(sizes) > 0 or not paths),
    )
    bytes_ = round(sum(sizes) * len(paths) / len(sizes)) if sizes else 0
    return SeenFile(folder.path, bytes_, 0, folder.opens, seen)


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


def read_files(machine: Machine, opened: FileOpens, is_time_left: Callable[[], bool]) -> list[SeenFile]:
    """Return the files of a run, by opens in descending order, then files that were only seen open.

    Missing and empty files are left out.
    """
    found = [seen for folder in opened.folders for seen in _of_folder(folder, opened.files, is_time_left)]
    found.sort(key=lambda one: -one.opens)
    # The sampler knows files by the kernel's paths.
    files = {os.path.realpath(one.path): one for one in found if one.folder is None}
    folders = [(os.path.join(os.path.realpath(one.path), ""), one) for one in found]
    for seen in _seen_open(machine):
        holding = (one for start, one in folders if _holds(start, one.folder, seen.path))
        known = files.get(seen.path) or next(holding, None)
        if known is None:
            found.append(seen)
        else:
            known.seen += seen.seen
    return found


def _holds(start: str, folder: SeenFolder | None, path: str) -> bool:
    if folder is None or not path.startswith(start) or not path.endswith(tuple(folder.ends)):
        return False
    return folder.is_deep or os.path.join(os.path.dirname(path), "") == start


def paths_read(machine: Machine, opened: FileOpens) -> list[str]:
    """Return the paths of single files, by opens in descending order."""
    told = [one.path for one in opened.files if not one.path.endswith(NO_DATA)]
    return list(dict.fromkeys([*told, *(one.path for one in _seen_open(machine))]))


def _of_folder(folder: OpenedFolder, files: list[OpenedFile], is_time_left: Callable[[], bool]) -> list[SeenFile]:
    start = os.path.join(folder.path, "")
    own = [
        one
        for one in files
        if one.path.startswith(start) and (folder.is_deep or os.path.dirname(one.path) == folder.path)
    ]
    is_closed = len(own) <= FEW or folder.opens >= COME_AGAIN * len(own)
    if sum(one.opens for one in own) == folder.opens and is_closed:
        sized = [(one, _size(one.path)) for one in own if not one.path.endswith(NO_DATA)]
        return [SeenFile(one.path, size, 0, one.opens) for one, size in sized if size]
    found = list_folder(folder, is_time_left=is_time_left)
    return [found] if found.folder is not None and found.folder.files else []


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


def places(machine: Machine) -> list[StagingPlace]:
    """Return places for copies of files, memory first: local, and not on a rotational disk."""
    found = []
    for folder, kind in ((SHM, "memory"), (tempfile.gettempdir(), "disk")):
        free = _free_bytes(folder)
        if free is not None and (kind == "memory" or not _is_slow(machine, folder)):
            found.append(StagingPlace(folder, free, kind))
    return found


def _free_bytes(folder: str) -> int | None:
    """Return the free bytes; None if the folder is not writable."""
    if not os.access(folder, os.W_OK):
        return None
    try:
        return int(psutil.disk_usage(folder).free)
    except OSError:
        return None


def _is_slow(machine: Machine, folder: str) -> bool:
    """Return True if a folder is known to be on a network, or on a rotational disk.

    An unknown disk counts as fast, since it is at least local.
    """
    mounts = [one for one in machine.facts.get("mounts") or [] if folder.startswith(one["path"])]
    mount = max(mounts, key=lambda one: len(one["path"]), default=None)
    if mount is None:
        return False
    disks = machine.facts.get("disks") or {}
    return bool(mount["network"]) or disks.get(mount.get("disk"), {}).get("rotational") is True
