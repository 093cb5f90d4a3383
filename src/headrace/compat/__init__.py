"""Drop-ins for PyTorch code that keeps its own Dataset and DataLoader. Each works alone, in one or two lines.

IndexedTar, IndexedZip        in place of a TarFile or ZipFile that a Dataset holds
decode_image, ImageReader, read_images    in place of Pillow and a transform in `__getitem__`
ResumableSampler, ResumableBatchSampler, BucketBatchSampler    for torch's DataLoader
ThreadDataLoader              in place of torch's DataLoader, on threads
shared_list                   in place of a list of millions of paths or records
as_dataloader                 any loader for frameworks that insist on a DataLoader
sample_rng                    random generators of the sample being loaded, the same at any number of threads
DevicePrefetcher              around any of these, on the way to the device
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.compat.bucket_sampler import BucketBatchSampler
    from headrace.compat.framework_dataloader import as_dataloader
    from headrace.compat.image_reader import ImageReader
    from headrace.compat.images import decode_image, read_images
    from headrace.compat.indexed_tar import IndexedTar
    from headrace.compat.indexed_zip import IndexedZip
    from headrace.compat.resumable_samplers import ResumableBatchSampler, ResumableSampler
    from headrace.compat.sample_random import sample_random
    from headrace.compat.shared_sequence import shared_list
    from headrace.compat.thread_loader import ThreadDataLoader
    from headrace.device.prefetcher import DevicePrefetcher

_HOMES = {
    "BucketBatchSampler": "headrace.compat.bucket_sampler",
    "DevicePrefetcher": "headrace.device.prefetcher",
    "ImageReader": "headrace.compat.image_reader",
    "IndexedTar": "headrace.compat.indexed_tar",
    "IndexedZip": "headrace.compat.indexed_zip",
    "ResumableBatchSampler": "headrace.compat.resumable_samplers",
    "ResumableSampler": "headrace.compat.resumable_samplers",
    "ThreadDataLoader": "headrace.compat.thread_loader",
    "as_dataloader": "headrace.compat.framework_dataloader",
    "decode_image": "headrace.compat.images",
    "read_images": "headrace.compat.images",
    "sample_random": "headrace.compat.sample_random",
    "shared_list": "headrace.compat.shared_sequence",
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
