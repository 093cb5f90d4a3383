"""Pinned host memory by the rules of torch's caching host allocator."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from stream_double.checker import REFILL_UNDER_COPY, Checker
from stream_double.clocks import Clock, Moment


@dataclass(frozen=True)
class _Copy:
    """Copy from a block to the device."""

    moment: Moment
    start: int
    content: bytes
    """Bytes as of the call. A device reads them at any time until the copy is done."""
    is_registered: bool
    """True if the allocator knows of it, and so does not hand the block out before it is done."""


@dataclass(eq=False)
class PinnedBlock:
    """One block, from its allocation until its storage is freed."""

    buffer: NDArray[np.uint8]
    storage: int
    copies: list[_Copy] = field(default_factory=list)
    arriving: Clock | None = None
    """Clock at which a copy from the device into the block is complete."""

    @property
    def address(self) -> int:
        return int(self.buffer.ctypes.data)


class PinnedMemory:
    """All pinned blocks of a run."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._blocks: dict[int, PinnedBlock] = {}

    def like(self, tensor: Tensor) -> Tensor:
        """Return a pinned copy, in the same layout. The block is freed with the last tensor on its storage."""
        buffer = np.empty(max(1, tensor.untyped_storage().nbytes()), np.uint8)
        owner = buffer.view()
        flat = torch.from_numpy(owner)[: tensor.untyped_storage().nbytes()].view(tensor.dtype)
        block = PinnedBlock(buffer, flat.untyped_storage()._cdata)
        with self._checker.lock:
            self._blocks[block.address] = block
        weakref.finalize(owner, self._free, block)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(tensor)

    def block_of(self, tensor: Tensor) -> PinnedBlock | None:
        """Return the block that holds a host tensor; any pointer into the block counts, as for the CUDA driver."""
        if not tensor.numel():
            return None
        address = tensor.data_ptr()
        with self._checker.lock:
            return next((b for b in self._blocks.values() if b.address <= address < b.address + len(b.buffer)), None)

    def copied(self, block: PinnedBlock, tensor: Tensor, moment: Moment, *, non_blocking: bool) -> None:
        """Register a copy of a tensor in the block.

        Torch's non-blocking copies alone inform the allocator, which finds the block by the tensor's own storage or
        by an address that is the block's first.
        """
        self._compare(block)
        is_found = tensor.untyped_storage()._cdata == block.storage or tensor.data_ptr() == block.address
        start = tensor.data_ptr() - block.address
        stop = start + tensor.untyped_storage().nbytes() - tensor.storage_offset() * tensor.element_size()
        content = block.buffer[start:stop].tobytes()
        with self._checker.lock:
            block.copies.append(_Copy(moment, start, content, non_blocking and is_found))

    def written(self, block: PinnedBlock) -> None:
        """Report a write of the host while a copy is in flight."""
        if self._in_flight(block):
            self._checker.report(REFILL_UNDER_COPY, "the host writes under a copy")

    def _in_flight(self, block: PinnedBlock) -> list[_Copy]:
        with self._checker.lock:
            known = self._checker.clocks.known()
            return [copy for copy in block.copies if not copy.moment.is_before(known)]

    def _compare(self, block: PinnedBlock) -> None:
        """Report bytes that have changed under a copy: native code writes unseen."""
        for copy in self._in_flight(block):
            if block.buffer[copy.start : copy.start + len(copy.content)].tobytes() != copy.content:
                self._checker.report(REFILL_UNDER_COPY, "bytes have changed under a copy")

    def _free(self, block: PinnedBlock) -> None:
        with self._checker.lock:
            del self._blocks[block.address]
        self._compare(block)
        if not all(copy.is_registered for copy in self._in_flight(block)):
            self._checker.report(
                REFILL_UNDER_COPY, "the host allocator does not know of a copy from a block it gets back"
            )
