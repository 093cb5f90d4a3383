"""Page-locked copies of a batch's tensors, from torch's caching host allocator."""

from __future__ import annotations

from typing import Any

from headrace.device.nested import NO_LEAF, Path, map_leaves


def pin(batch: Any) -> Any:
    """`batch` with each tensor pinned, in containers of the same types, and dataclasses; what has a `pin_memory` of its
    own is asked for it, containers included, and all else passes through, as in DataLoader."""
    return map_leaves(batch, _pinned)


def _pinned(path: Path, part: Any) -> Any:
    return part.pin_memory() if hasattr(part, "pin_memory") else NO_LEAF
