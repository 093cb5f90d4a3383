"""Memory for batches: recycled, pinned, or shared between processes."""

from __future__ import annotations

import os
import warnings
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import SharedMemoryError
from headrace.system.forks import close_in_forks, forget_ended_forks, keep_for_forks

if TYPE_CHECKING:
    import torch


# -- from feed/map_workers/shared_blocks.py: Memory without a name that a pass and its workers share: blocks of one
# anonymous file.


MAPPED_BLOCKS = 256
"""Blocks that a worker keeps mapped: more than are ever under way, few beside what the kernel allows (65,530)."""


class SharedFile:
    """Owns the descriptor of an anonymous file. A started process is handed it; forks of others close it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        close_in_forks(self)

    @classmethod
    def make(cls) -> SharedFile | None:
        """None where the system has no such files (memfd_create of Linux)."""
        try:
            return cls(os.memfd_create("headrace-map"))
        except (AttributeError, OSError):
            return None

    def fileno(self) -> int:
        assert self._descriptor is not None, "the file is closed"
        return self._descriptor

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __reduce__(self) -> tuple[Callable[..., SharedFile], tuple[Any, ...]]:
        return _handed, (reduction.DupFd(self.fileno()),)


class _Duplicate(Protocol):
    """A descriptor on its way into a process that is being started."""

    def detach(self) -> int: ...


def _handed(duplicate: _Duplicate) -> SharedFile:
    return SharedFile(duplicate.detach())


class SharedBlocks:
    """The parent's side: blocks that belong to whoever holds them, and are used again once nobody does.

    A fork of the parent holds those that were held when it was made.
    """

    def __init__(self, file: SharedFile, *, most_idle: int) -> None:
        self.file = file
        self._pool = _core.BlockPool(most_idle=most_idle, file=file.fileno())

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        """Raises SharedMemoryError."""
        forget_ended_forks()
        try:
            block = self._pool.acquire(bytes)
        except OSError as error:
            raise SharedMemoryError(
                f"no memory to share with map workers: {bytes:,} bytes more could not be had: {error.strerror}. Check "
                "free memory, the container's memory limit, and `ulimit -f -v`"
            ) from error
        keep_for_forks(block)
        return block[:bytes]

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Where in the file an array begins that lies at a block's start; None for any other."""
        try:
            return self._pool.offset(array.__array_interface__["data"][0])
        except IndexError:
            return None

    def held(self) -> int:
        """Blocks that somebody has."""
        return self._pool.usage()[0]

    def retire(self) -> None:
        """No more blocks: those that are idle, or come back, give their memory to the system."""
        forget_ended_forks()
        self._pool.retire()
        self.file.close()


class MappedBlocks:
    """A worker's side: blocks by their place in the file, mapped when they are first asked for."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._mapped: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()

    def fresh(self, offset: int, bytes: int) -> NDArray[np.uint8]:
        """The block's first bytes, as an array that no other call gives: it dies when nothing refers to it any more."""
        # By way of a memoryview: numpy would let views of views refer to the oldest array, which lives on here.
        return np.frombuffer(memoryview(self._block(offset, bytes).data), np.uint8, bytes)

    def _block(self, offset: int, bytes: int) -> NDArray[np.uint8]:
        block = self._mapped.get(offset)
        if block is None or len(block) < bytes:
            block = self._mapped[offset] = _core.map_file(self._file.fileno(), offset, bytes)
        self._mapped.move_to_end(offset)
        while len(self._mapped) > MAPPED_BLOCKS:
            self._mapped.popitem(last=False)
        return block


# -- from feed/memory.py: Where the memory of batches comes from.


HELD_BATCHES = 16
"""Batches that a consumer may hold beyond those prefetched before it is told what that costs."""


class BatchMemory(Protocol):
    """Memory that belongs to whoever holds it: it comes back when the last reference to it is gone."""

    def acquire(self, bytes: int) -> NDArray[np.uint8]: ...


class ProcessBlocks:
    """A pool of blocks, of which at most `most_idle` are kept for later. A forked child gets its own: its copy of the
    parent's may be locked for good."""

    def __init__(self, most_idle: int) -> None:
        self._most_idle = most_idle
        self._pid = -1

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        return self._of_this_process().acquire(bytes)

    def set_most_idle(self, most_idle: int) -> None:
        self._most_idle = most_idle
        self._of_this_process().set_most_idle(most_idle)

    def held(self) -> int:
        """Blocks that somebody has."""
        return self._of_this_process().usage()[0]

    def _of_this_process(self) -> _core.BlockPool:
        if self._pid != os.getpid():
            self._pool = _core.BlockPool(most_idle=self._most_idle)
            self._pid = os.getpid()
        return self._pool


class PooledMemory:
    """Ordinary memory of one loader, used again from batch to batch and from pass to pass."""

    def __init__(self, prefetch: int, images: int) -> None:
        self._prefetch = prefetch
        self._images = max(1, images)
        self._blocks = ProcessBlocks(most_idle=(prefetch + 1) * self._images)
        self._warned = False

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        return self._blocks.acquire(bytes)

    def set_prefetch(self, prefetch: int) -> None:
        """So many batches are kept for from now on."""
        if prefetch != self._prefetch:
            self._prefetch = prefetch
            self._blocks.set_most_idle((prefetch + 1) * self._images)

    def mind(self, batch_bytes: int, elsewhere: int | None = None, *, within: int = 0) -> None:
        """Tells a consumer once that it holds many batches, of this memory or of that `elsewhere`; nothing ever waits
        for them. `within`: how many loaders there are around the one that asks, which the warning has to go past."""
        held = self._blocks.held() // self._images if elsewhere is None else elsewhere
        if self._warned or held <= self._prefetch + HELD_BATCHES:
            return
        self._warned = True
        warnings.warn(
            f"{held} batches of {batch_bytes / 1e6:,.0f} MB each are alive: the loader allocates a new one for each "
            "that is held. Drop batches, or copy what you keep (tensor.clone())",
            UserWarning,
            stacklevel=4 + within,
        )


class PinnedMemory:
    """Page-locked memory from torch's caching host allocator, which knows of copies in flight: a block that is dropped
    while a device still reads it is not handed out before."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        import torch

        # A thread starts on device 0, where a rank of another device would leave a context by its first allocation.
        with torch.cuda.device(self._device):
            # The tensor is the array's base, so `Converter` finds it, and with it the allocator's own handle.
            array: NDArray[np.uint8] = torch.empty(bytes, dtype=torch.uint8, pin_memory=True).numpy()
        return array
