"""Memory that processes share and that has no name: nothing of it can be left behind, and `/dev/shm` is not used."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, Protocol

from headrace.errors import SharedMemoryError


class UnnamedMemory:
    """Read-only bytes that forked processes inherit and spawned ones are handed, without a copy.

    The kernel frees them with the last process that has them, however it ends. A pickle that is made for anything but
    the start of a process holds a copy of them.
    """

    def __init__(self, descriptor: int) -> None:
        """Maps an anonymous file that is not empty, and owns its descriptor from now on. Raises SharedMemoryError."""
        self.descriptor = descriptor
        size = os.fstat(descriptor).st_size
        # Populated, or what a single worker reads would count as its own (USS) until another one reads it too.
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        try:
            self.view = memoryview(mmap.mmap(descriptor, size, flags=flags, prot=mmap.PROT_READ))
        except OSError as error:
            raise _refused(f"{size:,} bytes could not be mapped", error) from error

    def __del__(self) -> None:
        os.close(self.descriptor)

    def __reduce__(self) -> tuple[Callable[..., UnnamedMemory], tuple[Any, ...]]:
        if get_spawning_popen() is None:
            return _from_bytes, (bytes(self.view),)
        return _from_parent, (reduction.DupFd(self.descriptor), _inode(self.descriptor))


class MemoryWriter:
    """Takes bytes a piece at a time, and gives them as memory in the end."""

    def __init__(self) -> None:
        """Raises SharedMemoryError."""
        self._descriptor: int | None = None
        self.written = 0
        try:
            self._descriptor = os.memfd_create("headrace-shared-list")
        except (AttributeError, OSError) as error:
            raise _refused("an anonymous file (memfd_create of Linux) could not be made", error) from error

    def __del__(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)

    def write(self, data: bytes | memoryview) -> None:
        """Raises SharedMemoryError."""
        assert self._descriptor is not None
        rest = memoryview(data).cast("B")
        try:
            while len(rest):
                count = os.write(self._descriptor, rest)
                rest = rest[count:]
                self.written += count
        except OSError as error:
            raise _refused(f"it is full after {self.written:,} bytes", error) from error

    def finish(self) -> UnnamedMemory:
        """What was written, at least a byte. Raises SharedMemoryError."""
        assert self._descriptor is not None
        descriptor, self._descriptor = self._descriptor, None
        return UnnamedMemory(descriptor)


class _Duplicate(Protocol):
    """A descriptor on its way into a process that is being started."""

    def detach(self) -> int: ...


_received: weakref.WeakValueDictionary[tuple[int, int], UnnamedMemory] = weakref.WeakValueDictionary()
"""What this process was handed, by inode: the same memory may come in several pickles, under one descriptor."""


def _from_parent(duplicate: _Duplicate, inode: tuple[int, int]) -> UnnamedMemory:
    descriptor = duplicate.detach()
    known = _received.get(inode)
    if known is None:
        known = _received[inode] = UnnamedMemory(descriptor)
    elif known.descriptor != descriptor:
        os.close(descriptor)
    return known


def _from_bytes(data: bytes) -> UnnamedMemory:
    writer = MemoryWriter()
    writer.write(data)
    return writer.finish()


def _inode(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _refused(what: str, error: Exception) -> SharedMemoryError:
    why = error.strerror if isinstance(error, OSError) else error
    return SharedMemoryError(
        f"no memory to share between processes: {what}: {why}. Check free memory, the container's memory limit, and "
        f"`ulimit -f -n -v`"
    )
