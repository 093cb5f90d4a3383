"""Drop-ins for PyTorch code that keeps its own Dataset and DataLoader. Each works alone, in one or two lines.

IndexedTar, IndexedZip        in place of a TarFile or ZipFile that a Dataset holds
decode_image, ImageReader, read_images    in place of Pillow and a transform in `__getitem__`
ResumableSampler, ResumableBatchSampler, BucketBatchSampler    for torch's DataLoader
ThreadDataLoader              in place of torch's DataLoader, on threads
cached                        around a Dataset, keeps what is the same each time, in RAM or on a disk
shared_list                   in place of a list of millions of paths or records
as_dataloader                 any loader for frameworks that insist on a DataLoader
sample_random                 random generators of the sample being loaded, the same at any number of threads
DevicePrefetcher              around any of these, on the way to the device
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.compat.archives.indexed_tar import IndexedTar
    from headrace.compat.archives.indexed_zip import IndexedZip
    from headrace.compat.caching.dataset import cached
    from headrace.compat.frameworks.dataloader import as_dataloader
    from headrace.compat.images.decoding import decode_image, read_images
    from headrace.compat.images.reader import ImageReader
    from headrace.compat.samplers.buckets import BucketBatchSampler
    from headrace.compat.samplers.resumable import ResumableBatchSampler, ResumableSampler
    from headrace.compat.sharing.shared_sequence import shared_list
    from headrace.compat.thread_loader.loader import ThreadDataLoader
    from headrace.compat.thread_loader.sample_random import sample_random
    from headrace.device.prefetcher import DevicePrefetcher

_HOMES = {
    "BucketBatchSampler": "headrace.compat.samplers.buckets",
    "DevicePrefetcher": "headrace.device.prefetcher",
    "ImageReader": "headrace.compat.images.reader",
    "IndexedTar": "headrace.compat.archives.indexed_tar",
    "IndexedZip": "headrace.compat.archives.indexed_zip",
    "ResumableBatchSampler": "headrace.compat.samplers.resumable",
    "ResumableSampler": "headrace.compat.samplers.resumable",
    "ThreadDataLoader": "headrace.compat.thread_loader.loader",
    "as_dataloader": "headrace.compat.frameworks.dataloader",
    "cached": "headrace.compat.caching.dataset",
    "decode_image": "headrace.compat.images.decoding",
    "read_images": "headrace.compat.images.decoding",
    "sample_random": "headrace.compat.thread_loader.sample_random",
    "shared_list": "headrace.compat.sharing.shared_sequence",
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
