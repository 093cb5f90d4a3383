"""Drop-ins for PyTorch code that has its own Dataset and DataLoader. Each works alone, in one or two lines.

IndexedTar, IndexedZip        replace a TarFile or ZipFile that a Dataset holds
decode_image, ImageReader, read_images    replace Pillow and a transform in `__getitem__`
ResumableSampler, ResumableBatchSampler, BucketBatchSampler    samplers for torch's DataLoader
ThreadDataLoader              replaces torch's DataLoader, on threads
cached                        wraps a Dataset, and caches its deterministic part in RAM or on a disk
shared_list                   replaces a list of millions of paths or records
as_dataloader                 wraps any loader for frameworks that insist on a DataLoader
sample_random                 random generators of the sample being loaded, the same at any number of threads
DevicePrefetcher              wraps any of these, and copies batches to the device
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.device import DevicePrefetcher
    from headrace.dropins.cached_dataset import cached
    from headrace.dropins.image_reader import ImageReader, decode_image, read_images
    from headrace.dropins.indexed_tar import IndexedTar
    from headrace.dropins.indexed_zip import IndexedZip
    from headrace.dropins.random_sources import sample_random
    from headrace.dropins.resumable_samplers import BucketBatchSampler, ResumableBatchSampler, ResumableSampler
    from headrace.dropins.shared_sequence import shared_list
    from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
    from headrace.loader import as_dataloader

_HOMES = {
    "BucketBatchSampler": "headrace.dropins.resumable_samplers",
    "DevicePrefetcher": "headrace.device",
    "ImageReader": "headrace.dropins.image_reader",
    "IndexedTar": "headrace.dropins.indexed_tar",
    "IndexedZip": "headrace.dropins.indexed_zip",
    "ResumableBatchSampler": "headrace.dropins.resumable_samplers",
    "ResumableSampler": "headrace.dropins.resumable_samplers",
    "ThreadDataLoader": "headrace.dropins.thread_loader.thread_dataloader",
    "as_dataloader": "headrace.loader",
    "cached": "headrace.dropins.cached_dataset",
    "decode_image": "headrace.dropins.image_reader",
    "read_images": "headrace.dropins.image_reader",
    "sample_random": "headrace.dropins.random_sources",
    "shared_list": "headrace.dropins.shared_sequence",
}
"""Where each name is defined. They are imported when they are asked for: most need torch, and none needs the others."""

__all__ = [
    "BucketBatchSampler",
    "DevicePrefetcher",
    "ImageReader",
    "IndexedTar",
    "IndexedZip",
    "ResumableBatchSampler",
    "ResumableSampler",
    "ThreadDataLoader",
    "as_dataloader",
    "cached",
    "decode_image",
    "read_images",
    "sample_random",
    "shared_list",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
