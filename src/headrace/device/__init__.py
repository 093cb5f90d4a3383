"""H2D copies ahead of the training step, and the largest batch that fits in memory."""

from __future__ import annotations

from headrace.device.feed import DeviceFeed, end_workers, lost_worker
from headrace.device.h2d_copy import CopyLane, CopyStats, Placement, PrefetchStats, lane_to, place, resolve
from headrace.device.image_conversion import AnyImages, Conversion, ImageSelector, NamedImages
from headrace.device.nested import NO_LEAF, Path, map_leaves
from headrace.device.prefetcher import DevicePrefetcher

__all__ = [
    "NO_LEAF",
    "AnyImages",
    "Conversion",
    "CopyLane",
    "CopyStats",
    "DeviceFeed",
    "DevicePrefetcher",
    "ImageSelector",
    "NamedImages",
    "Path",
    "Placement",
    "PrefetchStats",
    "end_workers",
    "lane_to",
    "lost_worker",
    "map_leaves",
    "place",
    "resolve",
]
