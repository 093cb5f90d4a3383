"""The way of a batch from host memory to the device. Imports torch."""

from headrace.device.conversion import Conversion
from headrace.device.feed import DeviceFeed
from headrace.device.image_conversion import AnyImages, Images, NamedImages
from headrace.device.lanes import Lane, lane_to, resolve
from headrace.device.placement import Placement, place
from headrace.device.prefetcher import DevicePrefetcher
from headrace.device.stats import CopyStats, PrefetchStats

__all__ = [
    "AnyImages",
    "Conversion",
    "CopyStats",
    "DeviceFeed",
    "DevicePrefetcher",
    "Images",
    "Lane",
    "NamedImages",
    "Placement",
    "PrefetchStats",
    "lane_to",
    "place",
    "resolve",
]
