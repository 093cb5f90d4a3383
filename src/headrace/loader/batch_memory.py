"""Memory for batches: recycled, pinned, or shared between processes."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from multiprocessing import reduction
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import SharedMemoryError, warn_caller
from headrace.system import close_in_forks, forget_ended_forks, keep_for_forks

if TYPE_CHECKING:
    import torch

    from headrace.device import Placement


MAPPED_BLOCKS = 256
"""Blocks that a worker leaves mapped: more than are ever in flight, few compared to the kernel's limit of 65,530."""


class SharedFile:
    """Descriptor of an anonymous file. A started process inherits it; forks of other processes close it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor
        close_in_forks(self)

    @classmethod
    def make(cls) -> SharedFile | None:
        """Return a new file; None if the system lacks Linux's memfd_create."""
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


def _handed(duplicate: Any) -> SharedFile:
    return SharedFile(duplicate.detach())


class SharedBlocks:
    """Blocks of one anonymous file that the loader shares with its workers. The loader's side.

    A block belongs to its holders and is reused after the last reference is gone. A fork of this process retains the
    blocks that were held at the fork.
    """

    def __init__(self, file: SharedFile, *, most_idle: int) -> None:
        self.file = file
        self._pool = _core.BlockPool(most_idle=most_idle, file=file.fileno())

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        """Return a block. Raises SharedMemoryError."""
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

    def place(self, bytes: int) -> tuple[NDArray[np.uint8], int]:
        """Return a block and its offset in the file."""
        block = self.acquire(bytes)
        offset = self.offset_of(block)
        assert offset is not None, "a block begins where it begins"
        return block, offset

    def offset_of(self, array: NDArray[Any]) -> int | None:
        """Return the file offset of an array that starts at a block's start; None for any other array."""
        try:
            return self._pool.offset(array.__array_interface__["data"][0])
        except IndexError:
            return None

    def held(self) -> int:
        """Return the number of blocks in use."""
        return self._pool.usage()[0]

    def retire(self) -> None:
        """Hand out no more blocks: idle and returned blocks give their memory back to the system."""
        forget_ended_forks()
        self._pool.retire()
        self.file.close()


class MappedBlocks:
    """Blocks of the shared file as a worker sees them, mapped on first use."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._mapped: OrderedDict[int, NDArray[np.uint8]] = OrderedDict()

    def fresh(self, offset: int, bytes: int) -> NDArray[np.uint8]:
        """Return the block's first bytes as a separate array, which dies with the last reference to it."""
        # A memoryview in between: numpy would let views of views refer to the oldest array, which lives on here.
        return np.frombuffer(memoryview(self._block(offset, bytes).data), np.uint8, bytes)

    def _block(self, offset: int, bytes: int) -> NDArray[np.uint8]:
        block = self._mapped.get(offset)
        if block is None or len(block) < bytes:
            block = self._mapped[offset] = _core.map_file(self._file.fileno(), offset, bytes)
        self._mapped.move_to_end(offset)
        while len(self._mapped) > MAPPED_BLOCKS:
            self._mapped.popitem(last=False)
        return block


HELD_BATCHES = 16
"""Batches that a consumer may hold beyond the prefetched ones before a warning about the cost."""


class BatchMemory(Protocol):
    """Source of memory that belongs to its holder and returns when the last reference is gone."""

    def acquire(self, bytes: int) -> NDArray[np.uint8]: ...


class ProcessBlocks:
    """Pool of blocks that retains at most `most_idle` for reuse.

    A forked child gets its own pool: in the child's copy, the parent's pool may be locked forever.
    """

    def __init__(self, most_idle: int) -> None:
        self._most_idle = most_idle
        self._pid = -1

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        return self._of_this_process().acquire(bytes)

    def set_most_idle(self, most_idle: int) -> None:
        self._most_idle = most_idle
        self._of_this_process().set_most_idle(most_idle)

    def held(self) -> int:
        """Return the number of blocks in use."""
        return self._of_this_process().usage()[0]

    def _of_this_process(self) -> _core.BlockPool:
        if self._pid != os.getpid():
            self._pool = _core.BlockPool(most_idle=self._most_idle)
            self._pid = os.getpid()
        return self._pool


class PooledMemory(ProcessBlocks):
    """Ordinary memory of one loader, reused from batch to batch and from pass to pass."""

    def __init__(self, prefetch: int, images: int) -> None:
        super().__init__(most_idle=(prefetch + 1) * max(1, images))
        self._prefetch = prefetch
        self._images = max(1, images)
        self._warned = False

    def set_prefetch(self, prefetch: int) -> None:
        """Retain idle blocks for this many prefetched batches from now on."""
        if prefetch != self._prefetch:
            self._prefetch = prefetch
            self.set_most_idle((prefetch + 1) * self._images)

    def warn_of_held(self, batch_bytes: int, elsewhere: int | None = None) -> None:
        """Warn a consumer once that it holds many batches, of this memory or `elsewhere`. Nothing waits for them."""
        held = self.held() // self._images if elsewhere is None else elsewhere
        if self._warned or held <= self._prefetch + HELD_BATCHES:
            return
        self._warned = True
        warn_caller(
            f"{held} batches of {batch_bytes:,} bytes each are alive: the loader allocates a new one for each "
            "that is held. Drop batches, or copy what you keep (tensor.clone())"
        )


class PinnedMemory:
    """Page-locked memory from torch's caching host allocator, which does not reuse a block while a copy reads it."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def acquire(self, bytes: int) -> NDArray[np.uint8]:
        import torch

        from headrace.device import accelerator_of

        # A new thread is on device 0: its first allocation would leave a context there, whatever the rank's device.
        with accelerator_of(self._device).device(self._device):
            # The tensor is the array's base, where `tensor_over` finds it.
            array: NDArray[np.uint8] = torch.empty(bytes, dtype=torch.uint8, pin_memory=True).numpy()
        return array


def memory_of(placement: Placement | None, *, prefetch: int, images: int) -> PinnedMemory | PooledMemory:
    """Return the memory for batches of `images` images: pinned if the device requires it."""
    if placement is not None and placement.pinned:
        return PinnedMemory(placement.device)
    return PooledMemory(prefetch, images)


def tensor_over(memory: NDArray[np.uint8]) -> torch.Tensor:
    """Return the tensor that owns pinned memory, so that torch's allocator learns of copies from it."""
    import torch

    return memory.base if isinstance(memory.base, torch.Tensor) else torch.from_numpy(memory)
