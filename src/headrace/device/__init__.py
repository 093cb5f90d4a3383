"""H2D copies ahead of the training step, and the largest batch that fits in memory."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.device.feed import DeviceFeed, begin_iterator, end_workers, lost_worker
    from headrace.device.h2d_copy import CopyLane, CopyStats, Placement, PrefetchStats, lane_to, place, resolve
    from headrace.device.image_conversion import AnyImages, Conversion, ImageSelector, NamedImages
    from headrace.device.memory import DeviceMemory
    from headrace.device.memory_budget import fit_budget
    from headrace.device.memory_search import BudgetFit, FittedBudget
    from headrace.device.nested import NO_LEAF, Path, map_leaves
    from headrace.device.prefetcher import DevicePrefetcher

_HOMES = {
    "feed": ("DeviceFeed", "begin_iterator", "end_workers", "lost_worker"),
    "h2d_copy": ("CopyLane", "CopyStats", "Placement", "PrefetchStats", "lane_to", "place", "resolve"),
    "image_conversion": ("AnyImages", "Conversion", "ImageSelector", "NamedImages"),
    "memory": ("DeviceMemory",),
    "memory_budget": ("fit_budget",),
    "memory_search": ("BudgetFit", "FittedBudget"),
    "nested": ("NO_LEAF", "Path", "map_leaves"),
    "prefetcher": ("DevicePrefetcher",),
}
"""Modules, and the names that each gives. They import torch, so each is imported when it is asked for."""

__all__ = [
    "NO_LEAF",
    "AnyImages",
    "BudgetFit",
    "Conversion",
    "CopyLane",
    "CopyStats",
    "DeviceFeed",
    "DeviceMemory",
    "DevicePrefetcher",
    "FittedBudget",
    "ImageSelector",
    "NamedImages",
    "Path",
    "Placement",
    "PrefetchStats",
    "begin_iterator",
    "end_workers",
    "fit_budget",
    "lane_to",
    "lost_worker",
    "map_leaves",
    "place",
    "resolve",
]


def __getattr__(name: str) -> object:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"headrace.device.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
