"""The memory that a training step has: how much there is, and how much it took."""

from __future__ import annotations

from typing import Protocol

import torch

from headrace.errors import UsageError

WORDS = ("can't allocate memory", "out of memory", "ALLOC_FAILED", "bad_alloc")
"""Of allocators and libraries that raise a plain RuntimeError: torch's for the CPU, cuBLAS, cuDNN, C++."""


class DeviceMemory(Protocol):
    """The seam between fitting a budget and a kind of device."""

    def capacity_bytes(self) -> int:
        """All that this process can have, what it has already included."""
        ...

    def begin(self) -> None:
        """Gives back what is kept for later, and forgets the peak."""
        ...

    def peak_bytes(self) -> int:
        """The most that this process had since `begin`."""
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether the error says that memory ran out."""
        ...


def says_out_of_memory(error: BaseException) -> bool:
    """Whether the error, or what it was raised from, is one that torch, numpy or a GPU's library raises then."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS):
        return True
    return error.__cause__ is not None and says_out_of_memory(error.__cause__)


class CudaMemory:
    """A GPU's, as torch's allocator takes it.

    The peak is what the allocator reserved, which is what the device has to give; with nothing kept from the step
    before, it is little more than what tensors took. What other processes hold is no part of the capacity.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def capacity_bytes(self) -> int:
        free, total = torch.cuda.mem_get_info(self._device)
        allowed = int(total * torch.cuda.get_per_process_memory_fraction(self._device))
        return min(free + torch.cuda.memory_reserved(self._device), allowed)

    def begin(self) -> None:
        torch.cuda.synchronize(self._device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(self._device)

    def peak_bytes(self) -> int:
        torch.cuda.synchronize(self._device)
        return torch.cuda.max_memory_reserved(self._device)

    def is_out_of_memory(self, error: BaseException) -> bool:
        return says_out_of_memory(error)


def memory_of(device: torch.device) -> DeviceMemory:
    """Raises UsageError for a kind of device whose memory is not measured here."""
    if device.type == "cuda":
        return CudaMemory(device)
    if device.type == "cpu":
        from headrace.device.memory import CpuMemory

        return CpuMemory()
    raise UsageError(f"device: expected 'cuda' or 'cpu', got {str(device)!r}: nothing else tells its peak of memory")
