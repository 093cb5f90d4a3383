"""Page-locked copies of a batch's tensors, from torch's caching host allocator."""

from __future__ import annotations

import copy
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torch


def pin(data: Any) -> Any:
    """`data` with each tensor pinned, in containers of the same types; what has a `pin_memory` of its own is asked for
    it, and all else passes through, as in DataLoader."""
    if isinstance(data, torch.Tensor) or hasattr(data, "pin_memory"):
        return data.pin_memory()
    if isinstance(data, str | bytes):
        return data
    if isinstance(data, Mapping):
        return _pin_mapping(data)
    if isinstance(data, tuple):
        parts = [pin(item) for item in data]
        return type(data)(*parts) if hasattr(data, "_fields") else type(data)(parts)
    if isinstance(data, Sequence):
        return _pin_sequence(data)
    return data


def _pin_mapping(data: Mapping[Any, Any]) -> Mapping[Any, Any]:
    parts = {key: pin(value) for key, value in data.items()}
    try:
        if not isinstance(data, MutableMapping):
            return type(data)(parts)  # type: ignore[call-arg]  # most mappings take one
        clone = copy.copy(data)  # a subclass may hold more than its items
        clone.update(parts)
        return clone
    except TypeError:
        return parts


def _pin_sequence(data: Sequence[Any]) -> Sequence[Any]:
    parts = [pin(item) for item in data]
    try:
        if not isinstance(data, MutableSequence):
            return type(data)(parts)  # type: ignore[call-arg]  # most sequences take one
        clone = copy.copy(data)
        for i, part in enumerate(parts):
            clone[i] = part
        return clone
    except TypeError:
        return parts
