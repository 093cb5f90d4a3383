"""A file that gets its name when it is finished, and is the lock of its builders until then.

Nothing is left over: whoever holds the flock of `NAME.partial` may write it and rename it to `NAME`. The kernel frees
the lock of a killed holder, and the next one writes over its remains.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

PARTIAL_SUFFIX = ".partial"


class UnwritableError(Exception):
    """A file cannot be written at this place."""


@contextmanager
def partial_file(place: str) -> Iterator[int]:
    """The descriptor of `place`.partial, locked; it is removed at the end unless it was renamed to `place`."""
    name = place + PARTIAL_SUFFIX
    descriptor = _lock(name)
    try:
        yield descriptor
    finally:
        if _is_at(descriptor, name):
            with suppress(OSError):
                os.unlink(name)
        os.close(descriptor)


def finish(partial: int, place: str, write: Callable[[BinaryIO], None]) -> None:
    """Writes the locked file and gives it its name. Raises UnwritableError."""
    try:
        os.ftruncate(partial, 0)
        with os.fdopen(partial, "wb", closefd=False) as file:
            write(file)
        os.fsync(partial)
        os.replace(place + PARTIAL_SUFFIX, place)
    except OSError as error:
        raise UnwritableError(error.strerror or str(error)) from error


def _lock(name: str) -> int:
    """Opens and locks `name`; waits for another holder. Raises UnwritableError."""
    try:
        os.makedirs(os.path.dirname(name), exist_ok=True)
        while True:
            descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            except BaseException:
                os.close(descriptor)
                raise
            # While this waited, the holder may have renamed the file: then it is the finished one.
            if _is_at(descriptor, name):
                return descriptor
            os.close(descriptor)
    except OSError as error:
        raise UnwritableError(error.strerror or str(error)) from error


def _is_at(descriptor: int, name: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(name))
    except FileNotFoundError:
        return False
