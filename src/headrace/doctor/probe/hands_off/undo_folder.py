"""Former contents of files, kept at the least cost that is safe.

A file that is about to lose its name keeps another one, which costs nothing. One that is about to be written in place
is copied, which costs nothing either where the file system shares blocks (XFS, Btrfs).
"""

from __future__ import annotations

import itertools
import os
import time
import zlib

from .folder import UndoFolder

MOST_BYTES = 1 << 30
"""No larger file is copied: the run would stand still for longer than what is measured."""
SPARE = 2
"""A copy may take one part in so many of the space that is free."""
CHEAP_BYTES = 1 << 20
"""Copied rather than given another name in the user's own folder."""
CHUNK_BYTES = 1 << 20
END_BYTES = 1 << 16


class CannotKeepError(Exception):
    """Says why."""


class Keeper:
    """Keeps them in the undo folder."""

    def __init__(self, folder: UndoFolder) -> None:
        self._folder = folder
        self._numbers = itertools.count()

    def linked(self, path: str, stat: os.stat_result) -> str:
        """Another name of the file: in the undo folder, or where that is on another file system, beside it."""
        if stat.st_nlink != 1:
            raise CannotKeepError("it has other names, through which it may be changed")
        return self._linked(path, stat)

    def copied(self, path: str, stat: os.stat_result, bytes_: int | None = None) -> str:
        """A copy of its first `bytes_`, by default of all."""
        size = stat.st_size if bytes_ is None else bytes_
        if size > MOST_BYTES:
            raise CannotKeepError(f"a copy would be {size} bytes, which is more than {MOST_BYTES}")
        free = os.statvfs(self._folder.kept)
        if size > CHEAP_BYTES and size * SPARE > free.f_bavail * free.f_frsize:
            raise CannotKeepError(f"a copy would be {size} bytes, and too little space is left in {self._folder.kept}")
        return self._copied(path, size)

    def _linked(self, path: str, stat: os.stat_result) -> str:
        try:
            return _link(path, os.path.join(self._folder.kept, self._name()))
        except OSError:
            if stat.st_size <= CHEAP_BYTES:
                raise CannotKeepError("it is on another file system") from None
        try:
            return _link(path, os.path.join(os.path.dirname(path), f".headrace-undo-{self._name()}"))
        except OSError as error:
            raise CannotKeepError(f"it can have no other name ({error.strerror})") from error

    def _copied(self, path: str, size: int) -> str:
        try:
            source = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CannotKeepError(f"it cannot be read ({error.strerror})") from error
        try:
            kept, target = self._new_file()
            try:
                _copy(source, target, size)
            except OSError as error:
                os.unlink(kept)
                raise CannotKeepError(f"it cannot be copied ({error.strerror})") from error
            finally:
                os.close(target)
        finally:
            os.close(source)
        return kept

    def _new_file(self) -> tuple[str, int]:
        path = os.path.join(self._folder.kept, self._name())
        try:
            return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise CannotKeepError(f"nothing can be written to {self._folder.kept} ({error.strerror})") from error

    def _name(self) -> str:
        """No other process's either, be it on another machine."""
        return f"{os.getpid()}-{time.monotonic_ns():x}-{next(self._numbers)}"


def end_sum(path: str, size: int) -> str:
    """Of the last bytes before `size`: of a file that was only appended to since, they are still the same. Empty where
    it cannot be read."""
    first = max(0, size - END_BYTES)
    try:
        with open(path, "rb", buffering=0) as file:
            file.seek(first)
            return str(zlib.crc32(file.read(size - first) or b""))
    except OSError:
        return ""


def _link(path: str, name: str) -> str:
    os.link(path, name, follow_symlinks=False)
    return name


def _copy(source: int, target: int, size: int) -> None:
    done = 0
    while done < size:
        count = _copy_some(source, target, min(size - done, MOST_BYTES))
        if not count:
            return  # it became shorter meanwhile
        done += count


def _copy_some(source: int, target: int, size: int) -> int:
    """By the kernel, which shares blocks where the file system can; by hand, where it cannot copy between the two."""
    try:
        return os.copy_file_range(source, target, size)
    except (AttributeError, OSError):
        data = os.read(source, min(size, CHUNK_BYTES))
        written = 0
        while written < len(data):
            written += os.write(target, data[written:])
        return written
