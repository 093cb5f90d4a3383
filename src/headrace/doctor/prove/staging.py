"""Copies of files in memory or on a local disk, for as long as one run needs them, and gone whatever happens."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from ..attach import proc
from ..machine.cgroups import Cgroups
from ..machine.kernel import LinuxKernel
from ..machine.memory import SHM, Memory

PREFIX = "headrace-"
"""Of the name of a folder that holds copies; its process's pid and start follow, so that whoever comes later can tell
whether it is still in use."""
SPARE = 0.1
"""Of the room there is, left to everybody else."""
_CHUNK_BYTES = 16 << 20
_JANITOR = 'read _; rm -rf -- "$1"'
"""Reads until whoever started it has ended, by whatever signal, and its end of the pipe with it."""


class StagingError(Exception):
    """Copies that cannot be made; the text says why."""


@contextlib.contextmanager
def staged(pairs: list[list[str]], *, deadline: float) -> Iterator[list[list[str]]]:
    """Copies each [source, copy] and gives the pairs as they then are: the copies lie in a folder of ours, below the
    one that was asked for. It is removed at the end, by us or by a janitor that outlives us.

    Raises StagingError where there is no room, a source cannot be read, or it is later than `deadline` (monotonic).
    """
    with contextlib.ExitStack() as stack:
        made = []
        for number, (source, copy) in enumerate(pairs):
            root = _root(copy)
            sweep(root)
            _check_room(source, root)
            folder = root / f"{PREFIX}{os.getpid()}-{_start_of(os.getpid())}-{number}"
            stack.enter_context(_removed(folder))
            target = folder / os.path.basename(os.path.normpath(source))
            _copy(Path(source), target, deadline)
            made.append([source, str(target)])
        yield made


def sweep(root: Path) -> None:
    """Removes folders of ours there whose processes have ended, with their janitors."""
    for folder in root.glob(f"{PREFIX}*-*-*"):
        parts = folder.name[len(PREFIX) :].split("-")
        if len(parts) == 3 and all(part.isdigit() for part in parts) and _start_of(int(parts[0])) != int(parts[1]):
            shutil.rmtree(folder, ignore_errors=True)


def _root(copy: str) -> Path:
    """The folder that is there already: what is asked for below it is ours to name."""
    folder = Path(os.path.abspath(copy)).parent
    while folder.name.startswith(PREFIX) or not folder.is_dir():
        folder = folder.parent
    return folder


def _start_of(pid: int) -> int | None:
    """In the kernel's clock ticks; None where there is no such process."""
    stat = proc.stat(pid)
    return None if stat is None else stat.started_ticks


@contextlib.contextmanager
def _removed(folder: Path) -> Iterator[None]:
    """Makes it, and sees to it that it goes."""
    janitor = subprocess.Popen(
        ["/bin/sh", "-c", _JANITOR, "janitor", str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # what ends us, or our group, must not end it
        close_fds=True,
    )
    try:
        folder.mkdir(mode=0o700)
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        assert janitor.stdin is not None
        janitor.stdin.close()
        janitor.wait()


def _check_room(source: str, root: Path) -> None:
    try:
        need = _size(Path(source))
    except OSError as error:
        raise StagingError(f"{source} cannot be read: {error.strerror}") from error
    free = shutil.disk_usage(root).free
    in_memory = str(root).startswith(SHM)
    room = min(free, _free_memory_bytes()) if in_memory else free
    if need > room * (1 - SPARE):
        what = f"{root}, which is memory" if in_memory else str(root)
        raise StagingError(
            f"{source} takes {need / 1e9:.2f} GB, and {what} has room for {room * (1 - SPARE) / 1e9:.2f} GB"
        )


def _free_memory_bytes() -> float:
    """Of the machine and of the control group; endless where neither tells."""
    kernel = LinuxKernel()
    memory = Memory(kernel, Cgroups(kernel, os.getpid()))
    row, facts = memory.read(0.0), memory.facts()
    limit, used = facts.get("memory_limit_bytes"), row.get("cgroup_memory_used_bytes")
    left = [row.get("memory_available_bytes"), None if limit is None or used is None else limit - used]
    return min((one for one in left if one is not None), default=float("inf"))


def _size(path: Path) -> int:
    if not path.is_dir():
        return path.stat().st_size
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())


def _copy(source: Path, target: Path, deadline: float) -> None:
    try:
        for file, to in _files(source, target):
            to.parent.mkdir(parents=True, exist_ok=True)
            _copy_file(file, to, deadline)
    except OSError as error:
        raise StagingError(f"{source} cannot be copied to {target}: {error.strerror}") from error


def _files(source: Path, target: Path) -> Iterator[tuple[Path, Path]]:
    if not source.is_dir():
        yield source, target
        return
    target.mkdir(parents=True)
    for entry in source.rglob("*"):
        if entry.is_file():
            yield entry, target / entry.relative_to(source)


def _copy_file(source: Path, target: Path, deadline: float) -> None:
    """In pieces, so that it can be left: Ctrl-C, or a copy that takes too long."""
    with open(source, "rb") as file, open(target, "wb") as copy:
        while piece := file.read(_CHUNK_BYTES):
            copy.write(piece)
            if time.monotonic() > deadline:
                raise StagingError(f"{source} takes longer to copy than there is time for")
    shutil.copystat(source, target)
