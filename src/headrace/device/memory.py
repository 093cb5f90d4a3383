"""Memory of a training step, on a GPU and on the CPU: capacity and peak."""

from __future__ import annotations

import ctypes
import resource
from pathlib import Path
from typing import Protocol

import torch

from headrace.errors import UsageError
from headrace.system import memory

WORDS = ("can't allocate memory", "out of memory", "ALLOC_FAILED", "bad_alloc")
"""Of allocators and libraries that raise a plain RuntimeError: torch's for the CPU, cuBLAS, cuDNN, C++."""


class DeviceMemory(Protocol):
    """The seam between fitting a budget and a kind of device."""

    def capacity_bytes(self) -> int:
        """Return all that this process can have, what it has already included."""
        ...

    def begin(self) -> None:
        """Give back what is cached for later, and forget the peak."""
        ...

    def peak_bytes(self) -> int:
        """Return the most that this process had since `begin`."""
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return whether the error says that memory ran out."""
        return says_out_of_memory(error)


def says_out_of_memory(error: BaseException) -> bool:
    """Return whether the error, or what it was raised from, is one that torch, numpy or a GPU's library raises then."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS):
        return True
    return error.__cause__ is not None and says_out_of_memory(error.__cause__)


class CudaMemory(DeviceMemory):
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


def memory_of(device: torch.device) -> DeviceMemory:
    """Return what measures a device's memory. Raises UsageError for a kind of device that is not measured here."""
    if device.type == "cuda":
        return CudaMemory(device)
    if device.type == "cpu":
        return CpuMemory()
    raise UsageError(f"device: expected 'cuda' or 'cpu', got {str(device)!r}: nothing else tells its peak of memory")


STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""See proc(5), /proc/pid/clear_refs."""


class CpuMemory(DeviceMemory):
    """Resident memory of this process, up to its limits.

    These are what is free on the machine and in its control groups, and its address space (RLIMIT_AS). Beyond the last
    a step gets an error. Beyond the others Linux ends the process, so that only the margin protects it.

    What is mapped and never touched, a library's code say, takes of the address space and is not resident. It is no
    part of the capacity; what a step adds to it counts to its peak.
    """

    def __init__(self) -> None:
        self._untouched_bytes = 0

    def capacity_bytes(self) -> int:
        known = memory()
        limits = [_status_bytes("VmRSS") + known.available_bytes, known.total_bytes]
        address_space = resource.getrlimit(resource.RLIMIT_AS)[0]
        if address_space != resource.RLIM_INFINITY:
            limits.append(address_space - _untouched_bytes())
        return min(limits)

    def begin(self) -> None:
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc keeps what was freed, and would count it to the next step
            trim(0)
        try:
            CLEAR_REFS.write_text(RESET_PEAK)
        except OSError as error:
            raise UsageError(
                f"expected {CLEAR_REFS} to reset this process's peak of memory, got {error}; budgets for the CPU are "
                "fitted on Linux only; pass hr.Budget(…) instead"
            ) from error
        self._untouched_bytes = _untouched_bytes()

    def peak_bytes(self) -> int:
        limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
        added = _untouched_bytes() - self._untouched_bytes if limited else 0
        return _status_bytes("VmHWM") + max(0, added)


def _status_bytes(name: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _untouched_bytes() -> int:
    return _status_bytes("VmSize") - _status_bytes("VmRSS")
