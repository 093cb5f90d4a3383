"""Where the memory of batches comes from."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from headrace import _core

if TYPE_CHECKING:
    import torch

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
