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
"""Words in the plain RuntimeErrors of allocators and libraries: torch's for the CPU, cuBLAS, cuDNN, C++."""


class DeviceMemory(Protocol):
    """Interface between the fitting of a budget and a kind of device."""

    def capacity_bytes(self) -> int:
        """Return all memory that this process can have, including what it already has."""
        ...

    def begin(self) -> None:
        """Release cached memory, and reset the peak."""
        ...

    def peak_bytes(self) -> int:
        """Return the maximum memory of this process since `begin`."""
        ...

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Return True if the error means that memory ran out."""
        return says_out_of_memory(error)


def says_out_of_memory(error: BaseException) -> bool:
    """Return True if the error, or its cause, is an out-of-memory error of torch, numpy or a GPU's library."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    if isinstance(error, RuntimeError) and any(word in str(error) for word in WORDS):
        return True
    return error.__cause__ is not None and says_out_of_memory(error.__cause__)


class CudaMemory(DeviceMemory):
    """Memory of a GPU, as torch's allocator takes it.

    The peak is what the allocator reserved, which the device has to provide. With nothing cached from the step before,
    it is little more than the tensors' memory. Memory of other processes is not part of the capacity.
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
    """Return the meter of a device's memory. Raises UsageError for an unsupported kind of device."""
    if device.type == "cuda":
        return CudaMemory(device)
    if device.type == "cpu":
        return CpuMemory()
    raise UsageError(f"device: expected 'cuda' or 'cpu', got {str(device)!r}: nothing else tells its peak of memory")


STATUS = Path("/proc/self/status")
CLEAR_REFS = Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""Value that resets the peak; see proc(5), /proc/pid/clear_refs."""


class CpuMemory(DeviceMemory):
    """Resident memory of this process, up to its limits.

    The limits are the free memory of the machine and of its control groups, and the address space (RLIMIT_AS). Beyond
    the address space a step gets an error. Beyond the others Linux ends the process, so that only the margin protects
    it.

    Memory that is mapped and never touched, such as a library's code, takes address space and is not resident. It is
    not part of the capacity; what a step adds to it counts towards its peak.
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
        if trim is not None:  # glibc retains freed memory, and would count it in the next step
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
