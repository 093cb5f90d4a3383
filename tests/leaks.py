"""What a test leaves behind in this process and on this machine: threads, processes, descriptors, shared memory."""

from __future__ import annotations

import gc
import os
import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from processes import eventually, own_threads

from headrace.system.forks import forget_ended_forks
from headrace.tools.bench.runs import tree

SELF_FD = "/proc/self/fd"
SHARED_MEMORY = Path("/dev/shm")
TQDM_THREAD = "tqdm_monitor"
"""tqdm, which datasets shows its progress by, starts it with the first bar and keeps it for the next."""


@dataclass(frozen=True)
class Inventory:
    """What exists at one moment, each thing in words that a failing test can print."""

    threads: frozenset[str]
    processes: frozenset[str]
    descriptors: frozenset[str]
    shared_memory: dict[str, int]
    """Inodes by name, whoever has them mapped."""

    def beyond(self, before: Inventory) -> list[str]:
        """What is here and was not before."""
        kinds = ("threads", "processes", "descriptors")
        new = {kind: sorted(getattr(self, kind) - getattr(before, kind)) for kind in kinds}
        new["shared memory"] = _nobodys(
            {name: inode for name, inode in self.shared_memory.items() if name not in before.shared_memory}
        )
        return [f"{kind}: {', '.join(names)}" for kind, names in new.items() if names]


def inventory() -> Inventory:
    forget_ended_forks()  # what is kept for them is let go of when the next pass or fork looks
    return Inventory(
        threads=frozenset(_threads()),
        processes=frozenset(_children()),
        descriptors=frozenset(_descriptors()),
        shared_memory={entry.name: entry.inode() for entry in os.scandir(SHARED_MEMORY)},
    )


def leaks_of(before: Inventory, *, settled: Callable[[Callable[[], bool]], bool] = eventually) -> list[str]:
    """What is left beyond `before` once garbage is collected and the kernel has taken down what was joined."""
    return [] if settled(lambda: not _beyond(before)) else inventory().beyond(before)


def _beyond(before: Inventory) -> list[str]:
    """Garbage is collected each time: what ends late, a thread with its error, may leave some then."""
    beyond = inventory().beyond(before)
    if beyond:
        gc.collect()
        beyond = inventory().beyond(before)
    return beyond


def _threads() -> Iterable[str]:
    """Every Python thread, and the feed's native ones; torch keeps native threads of its own for good."""
    yield from (f"{thread.name} ({thread.ident})" for thread in threading.enumerate() if thread.name != TQDM_THREAD)
    yield from own_threads()


def _children() -> Iterable[str]:
    yield from (f"{pid} ({_command(pid)})" for pid in _own_children())


def _own_children() -> list[int]:
    try:
        return list(_descendants(os.getpid()))
    except OSError:  # a kernel without these lists, or a task ended meanwhile and another adopted its children
        return tree(os.getpid())[1:]


def _descendants(pid: int) -> Iterable[int]:
    """By the lists of each task's children: `tree` reads of every process on the machine, which every test would pay
    for several times."""
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/children", "rb") as children:
            numbers = children.read().split()
        for child in map(int, numbers):
            yield child
            yield from _descendants(child)


def _descriptors() -> Iterable[str]:
    for name in os.listdir(SELF_FD):
        try:
            yield f"{name} -> {os.readlink(f'{SELF_FD}/{name}')}"
        except OSError:  # the one that lists this folder
            continue


def _nobodys(files: dict[str, int]) -> list[str]:
    """Names of what nobody has, or this process or its children: that of programs beside it comes and goes."""
    others = _mapped_by_others() if files else set()
    return sorted(name for name, inode in files.items() if inode not in others)


def _mapped_by_others() -> set[int]:
    """By inode: a semaphore is mapped under another name than it gets."""
    ours = {os.getpid(), *_own_children()}
    found: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        if int(folder.name) in ours:
            continue
        try:
            maps = (folder / "maps").read_text()
        except OSError:  # ended meanwhile, or another user's
            continue
        found.update(map(int, re.findall(rf" (\d+) +{SHARED_MEMORY}/", maps)))
    return found


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ").strip()[:80] or "ended, not waited for"
    except OSError:
        return "gone"
