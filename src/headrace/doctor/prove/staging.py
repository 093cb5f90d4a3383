"""Staging of a run's files in shared memory during a trial."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headrace.system import available_bytes

from ..attach import process_stat
from ..machine import SHM
from ..quantities import size

PREFIX = "headrace-"
"""Prefix of a folder of copies. Followed by pid namespace, pid, process start, and a number.

These identify the process, so that a later one can check whether the folder is still in use.
"""
SPARE = 0.1
"""Share of the free space that is left to others."""
_CHUNK_BYTES = 16 << 20
_ALL = "**/*"
_JANITOR = 'exec 3<&0; { read _ <&3; rm -rf -- "$1"; } &'
"""Script that waits for the end of its starter, by any signal, through the closed pipe.

It runs in the background, and so is nobody's child: only the command's own actions leave child processes.
"""
_numbers = itertools.count()


class StagingError(Exception):
    """Failure to make copies; the text says why."""


@contextlib.contextmanager
def staged(pairs: list[list[Any]], *, deadline: float) -> Iterator[list[list[str]]]:
    """Copy files, and yield the pairs of source and copy.

    Each pair is [source, copy], or [source, copy, patterns] for the matching files of a folder. The copies are in a
    folder of ours inside the requested one. It is removed at the end, by us or by a janitor that outlives us.

    Raises:
        StagingError: There is no room, a source cannot be read, or it is later than `deadline` (monotonic).
    """
    by_root: dict[Path, list[_StagedSource]] = {}
    for path, copy, *patterns in pairs:
        source = _listed(Path(os.path.abspath(path)), patterns[0] if patterns else [_ALL], deadline)
        by_root.setdefault(_root(copy), []).append(source)
    with contextlib.ExitStack() as stack:
        made = []
        for root, sources in by_root.items():
            sweep(root)
            _check_room(sum(source.bytes for source in sources), root)
            folder = root / f"{_own_prefix()}{os.getpid()}-{_start_of(os.getpid())}-{next(_numbers)}"
            stack.enter_context(_removed(folder))
            for number, source in enumerate(sources):
                target = folder / str(number) / source.path.name
                _copy(source, target, deadline)
                made.append([str(source.path), str(target)])
        yield made


class _StagedSource(NamedTuple):
    path: Path
    files: list[Path]
    bytes: int


def _listed(path: Path, patterns: list[str], deadline: float) -> _StagedSource:
    """List a file, or the matching files of a folder."""
    entries = (entry for pattern in patterns for entry in path.glob(pattern)) if path.is_dir() else iter([path])
    files = []
    try:
        for entry in entries:
            _check_time(path, deadline)
            if entry == path or entry.is_file():
                files.append(entry)
        return _StagedSource(path, files, sum(file.stat().st_size for file in files))
    except OSError as error:
        raise StagingError(f"{path} cannot be read: {error.strerror}") from error


def sweep(root: Path) -> None:
    """Remove folders left by processes that ended together with their janitors."""
    own = _own_prefix()
    for folder in root.glob(f"{own}*-*-*"):
        parts = folder.name[len(own) :].split("-")
        if len(parts) == 3 and all(part.isdigit() for part in parts) and _start_of(int(parts[0])) != int(parts[1]):
            shutil.rmtree(folder, ignore_errors=True)


def _own_prefix() -> str:
    """Return the prefix of this container: containers that share a folder do not see each other's processes."""
    namespace = os.readlink("/proc/self/ns/pid").strip("pid:[]")
    return f"{PREFIX}{namespace}-"


def _root(copy: str) -> Path:
    """Return the existing part of a folder: whatever is requested below it is ours to name."""
    folder = Path(os.path.abspath(copy)).parent
    named_by_us = [parent for parent in folder.parents if parent.name.startswith(PREFIX)]
    if named_by_us:
        folder = named_by_us[-1]
    while folder.name.startswith(PREFIX) or not folder.is_dir():
        folder = folder.parent
    return folder


def _start_of(pid: int) -> int | None:
    """Return a process's start in kernel clock ticks; None if it does not exist."""
    stat = process_stat(pid)
    return None if stat is None else stat.started_ticks


@contextlib.contextmanager
def _removed(folder: Path) -> Iterator[None]:
    """Create a folder, and ensure its removal."""
    reader, writer = os.pipe()
    try:
        # Own session: a signal that ends us, or our group, must not end the janitor.
        none = subprocess.DEVNULL
        arguments = ["/bin/sh", "-c", _JANITOR, "janitor", str(folder)]
        subprocess.run(arguments, stdin=reader, stdout=none, stderr=none, start_new_session=True, check=True)
        folder.mkdir(mode=0o700)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(reader)
        os.close(writer)


def _check_room(need: int, root: Path) -> None:
    free, where = shutil.disk_usage(root).free, str(root)
    if where.startswith(SHM):
        memory, where = available_bytes(), f"{root}, which is memory,"
        free = free if memory is None else min(free, memory)
    room = free * (1 - SPARE)
    if need > room:
        raise StagingError(f"the files are {size(need)}, and {where} has room for {size(room)}")


def _copy(source: _StagedSource, target: Path, deadline: float) -> None:
    """Copy in chunks, so that Ctrl-C or the deadline can stop it."""
    try:
        if source.path.is_dir():
            target.mkdir(parents=True)
        for file in source.files:
            to = target / file.relative_to(source.path)
            to.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "rb") as original, open(to, "wb") as copy:
                while piece := original.read(_CHUNK_BYTES):
                    copy.write(piece)
                    _check_time(file, deadline)
            shutil.copystat(file, to)
    except OSError as error:
        raise StagingError(f"{source.path} cannot be copied to {target}: {error.strerror}") from error


def _check_time(source: Path, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise StagingError(f"{source} takes longer to copy than there is time for")
