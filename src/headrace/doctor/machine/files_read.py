"""The files that a run reads: those opened while batches were made, one by one or by their folder, and those that the
sampler saw open, as archives are all the time."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from headrace.doctor.session.model import Machine, Opened, OpenedFile, OpenedFolder, SeenFile, SeenFolder
from headrace.doctor.survey.folders import listed

NO_DATA = (".py", ".pyc", ".so", ".log")
"""Ends of names of files that are no samples, whoever opens them."""
READ_ONCE = (".json", ".jsonl", ".yaml", ".toml")
"""Those of files that are most often read at the start, where nobody opened them for a batch."""
FEW = 4
"""Files of a folder that stand for themselves, and not for others of it that will be read later."""
COME_AGAIN = 3.0
"""Opens a file from which on those that were opened are taken to be all that are read."""


def read_files(machine: Machine, opened: Opened, is_time_left: Callable[[], bool]) -> list[SeenFile]:
    """Those opened most first, then those that were only seen open, those seen most first. Files that are gone, or
    empty, are left out."""
    found = [seen for folder in opened.folders for seen in _of_folder(folder, opened.files, is_time_left)]
    found.sort(key=lambda one: -one.opens)
    places = _Places(found)
    return found + [one for one in _seen_open(machine) if not places.have(one)]


def paths(machine: Machine, opened: Opened) -> list[str]:
    """Of single files, those opened most first."""
    told = [one.path for one in opened.files if not one.path.endswith(NO_DATA)]
    return list(dict.fromkeys([*told, *(one.path for one in _seen_open(machine))]))


def _of_folder(folder: OpenedFolder, files: list[OpenedFile], is_time_left: Callable[[], bool]) -> list[SeenFile]:
    own = [one for one in files if _lies_in(one.path, folder)]
    is_closed = folder.names <= FEW or folder.opens >= COME_AGAIN * folder.names
    if folder.is_exact and len(own) == folder.names and is_closed:
        sized = [(one, _size(one.path)) for one in own if not one.path.endswith(NO_DATA)]
        return [SeenFile(one.path, size, 0, one.opens) for one, size in sized if size]
    ends = [end for end in folder.ends if end not in NO_DATA]
    found = listed(folder.path, ends, is_deep=folder.is_deep, is_time_left=is_time_left)
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
    """Where files lie that are known already: the sampler knows them by the names that the kernel has for them."""

    known: list[SeenFile]
    _files: dict[str, SeenFile] = field(init=False)
    _folders: list[tuple[str, SeenFile]] = field(init=False)

    def __post_init__(self) -> None:
        self._files = {os.path.realpath(one.path): one for one in self.known if one.folder is None}
        self._folders = [
            (os.path.join(os.path.realpath(one.path), ""), one) for one in self.known if one.folder is not None
        ]

    def have(self, seen: SeenFile) -> bool:
        """Counts it there, if so."""
        it = self._files.get(seen.path) or next((one for start, one in self._folders if _has(start, one, seen)), None)
        if it is not None:
            it.seen += seen.seen
        return it is not None


def _has(start: str, one: SeenFile, seen: SeenFile) -> bool:
    if one.folder is None or not seen.path.startswith(start) or not seen.path.endswith(tuple(one.folder.ends)):
        return False
    return one.folder.is_deep or os.path.join(os.path.dirname(seen.path), "") == start
