"""H2D copies ahead of the training step, and the largest batch that fits in memory.

Used by `loader` and `dropins`. Read `feed.py` and `h2d_copy.py` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.device.accelerators import accelerator_of
    from headrace.device.feed import DeviceFeed, end_workers, lost_worker
    from headrace.device.h2d_copy import CopyLane, Placement, place
    from headrace.device.image_conversion import AnyImages, Conversion
    from headrace.device.image_decoding import ImageDecoder
    from headrace.device.memory import DeviceMemory
    from headrace.device.memory_budget import fit_budget
    from headrace.device.nested import NO_LEAF, Path, map_leaves
    from headrace.device.prefetcher import DevicePrefetcher

_HOMES = {
    "accelerators": ("accelerator_of",),
    "feed": ("DeviceFeed", "end_workers", "lost_worker"),
    "h2d_copy": ("CopyLane", "Placement", "place"),
    "image_conversion": ("AnyImages", "Conversion"),
    "image_decoding": ("ImageDecoder",),
    "memory": ("DeviceMemory",),
    "memory_budget": ("fit_budget",),
    "nested": ("NO_LEAF", "Path", "map_leaves"),
    "prefetcher": ("DevicePrefetcher",),
}
"""Public names by module. The modules import torch, so each is imported on first access to one of its names."""

__all__ = [
    "NO_LEAF",
    "AnyImages",
    "Conversion",
    "CopyLane",
    "DeviceFeed",
    "DeviceMemory",
    "DevicePrefetcher",
    "ImageDecoder",
    "Path",
    "Placement",
    "accelerator_of",
    "end_workers",
    "fit_budget",
    "lost_worker",
    "map_leaves",
    "place",
]


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"headrace.device.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
