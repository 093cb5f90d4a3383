"""What started processes do with an archive or a shared list: apart from the tests, so that these import little."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

WORKERS = 8
READS = 200


def in_processes(method: str, work: Callable[..., Any], *args: Any, count: int = 1) -> list[Any]:
    """What `work(number, *args)` returns in each of `count` processes that run at the same time."""
    context = multiprocessing.get_context(method)
    started = [_start(context, work, number, *args) for number in range(count)]
    results = []
    for process, end in started:
        with end:
            try:
                results.append(end.recv())
            except EOFError:
                results.append("died")
        process.join()
    return results


def _start(context: BaseContext, *work_and_arguments: Any) -> tuple[Any, Connection]:
    ours, theirs = context.Pipe()
    process = context.Process(target=_run, args=(theirs, *work_and_arguments))
    process.start()
    theirs.close()
    return process, ours


def _run(end: Connection, work: Callable[..., Any], *args: Any) -> None:
    try:
        result = work(*args)
    except BaseException as error:
        result = repr(error)
    end.send(result)
    end.close()


def content_of(name: str) -> bytes:
    """What a member holds, from its name alone: of very different lengths, and all different."""
    rng = random.Random(name)
    return name.encode() + rng.randbytes(rng.choice((0, 10, 511, 512, 5000, 70_000)))


def read_at_random(number: int, archives: Sequence[Any], names: Sequence[str], *, reads: int = READS) -> int:
    """How many reads of random members gave what they should."""
    rng = random.Random(number)
    return sum(_reads_right(rng.choice(archives), rng.choice(names), rng) for _ in range(reads))


def _reads_right(archive: Any, name: str, rng: random.Random) -> bool:
    if rng.random() < 0.5:
        return archive.read(name) == content_of(name)
    file = archive.extractfile(name)
    start = rng.randrange(len(content_of(name)))
    file.seek(start)
    return file.read() == content_of(name)[start:]


class ArchivesDataset:
    """What a user's Dataset is: it holds the archives and the names."""

    def __init__(self, archives: Sequence[Any], names: Sequence[str]) -> None:
        self._archives = archives
        self._names = names

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> bytes:
        return self._archives[index % len(self._archives)].read(self._names[index])


def described(_: int, items: Any) -> tuple[list[Any], int]:
    """The items, and the inode of the memory that they lie in."""
    return list(items), os.fstat(items._memory.descriptor).st_ino


def same_memory(_: int, items: Any, others: Any) -> tuple[bool, int]:
    """Whether two lists share memory, and the descriptors that it has here."""
    inode = os.fstat(items._memory.descriptor).st_ino
    here = [int(fd) for fd in os.listdir("/proc/self/fd") if _inode(int(fd)) == inode]
    return items._memory is others._memory, len(here)


def _inode(descriptor: int) -> int:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return -1
