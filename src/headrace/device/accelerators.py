"""Accelerators, by torch's module for each kind: torch.cuda, torch.xpu, torch.npu.

The modules share the names of torch.cuda, in every version of torch. torch.accelerator, torch.Stream and torch.Event
serve every kind as well, but only from torch 2.6 on.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from headrace.errors import UsageError, warn_caller

_NAMES = ("Event", "Stream", "current_device", "current_stream", "device", "device_count", "is_available", "stream")


def accelerator_of(device: torch.device) -> Any:
    """Return torch's module for the device's kind; None for the CPU, and for a kind without streams."""
    module = None if device.type == "cpu" else getattr(torch, device.type, None)
    return module if all(hasattr(module, name) for name in _NAMES) else None


def resolve(device: str | torch.device) -> torch.device:
    """Return the device with its index. Raises UsageError for a device that is not available."""
    try:
        found = torch.device(device)
    except RuntimeError as error:
        raise UsageError(f"device: expected one that torch knows, such as 'cuda' or 'cpu', got {device!r}") from error
    module = accelerator_of(found)
    if module is None:
        return found
    if not module.is_available():
        raise UsageError(
            f"device: expected a device of this machine, got {device!r}, but {_why_missing(found.type)}; "
            "pass device='cpu'"
        )
    count = module.device_count()
    index = module.current_device() if found.index is None else found.index
    if index >= count:
        raise UsageError(f"device: expected one of {found.type}:0 to {found.type}:{count - 1}, got {device!r}")
    return torch.device(found.type, index)


def _why_missing(kind: str) -> str:
    if kind != "cuda":
        return f"torch sees no {kind}"
    return "torch sees no GPU" if torch.version.cuda or torch.version.hip else "torch is built without CUDA"


@cache
def copies_alongside(kind: str) -> bool:
    """Return True if copies to this kind of device run alongside training: from pinned memory, on a side stream.

    Warns, once, of an accelerator for which torch lacks either, such as MPS.
    """
    if kind in ("cpu", "meta", "cuda"):
        return kind == "cuda"
    if _pins_memory() and accelerator_of(torch.device(kind)) is not None:
        return True
    warn_caller(
        f"torch has no pinned memory, or no streams, for {kind!r}: each batch is copied from ordinary memory, and the "
        "thread that prefetches waits for the copy",
        RuntimeWarning,
    )
    return False


def _pins_memory() -> bool:
    """Return True if torch pins memory for the accelerator. On MPS it returns the device's own memory instead."""
    try:
        probe = torch.empty(1, pin_memory=True)
    except (RuntimeError, NotImplementedError):
        return False
    return probe.device.type == "cpu" and probe.is_pinned()
