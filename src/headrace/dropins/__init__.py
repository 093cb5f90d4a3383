"""Drop-ins for PyTorch code with its own Dataset and DataLoader. Each works alone and takes one or two lines.

IndexedTar, IndexedZip        replace a TarFile or ZipFile that a Dataset holds
decode_image, ImageReader, read_images    replace Pillow and transforms in `__getitem__`
ResumableSampler, ResumableBatchSampler, BucketBatchSampler    samplers for torch's DataLoader
ThreadDataLoader              replaces torch's DataLoader, with threads as workers
cached                        wraps a Dataset and caches its deterministic part in RAM or on disk
shared_list                   replaces a list of millions of paths or records
as_dataloader                 wraps any loader for frameworks that require a DataLoader
decode_batch                  a Loader's batch of bytes that another engine holds
sample_random                 random generators of the current sample, the same with any number of threads
DevicePrefetcher              wraps any of these and copies batches to the device

Used by training scripts. Read `thread_loader/thread_dataloader.py` and `image_reader.py` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.device import DevicePrefetcher as DevicePrefetcher
    from headrace.dropins.batch_from_bytes import decode_batch as decode_batch
    from headrace.dropins.cached_dataset import cached as cached
    from headrace.dropins.image_reader import ImageReader as ImageReader
    from headrace.dropins.image_reader import decode_image as decode_image
    from headrace.dropins.image_reader import read_images as read_images
    from headrace.dropins.indexed_tar import IndexedTar as IndexedTar
    from headrace.dropins.indexed_zip import IndexedZip as IndexedZip
    from headrace.dropins.random_sources import sample_random as sample_random
    from headrace.dropins.resumable_samplers import BucketBatchSampler as BucketBatchSampler
    from headrace.dropins.resumable_samplers import ResumableBatchSampler as ResumableBatchSampler
    from headrace.dropins.resumable_samplers import ResumableSampler as ResumableSampler
    from headrace.dropins.shared_sequence import shared_list as shared_list
    from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader as ThreadDataLoader
    from headrace.loader import as_dataloader as as_dataloader


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
    "decode_batch": "headrace.dropins.batch_from_bytes",
    "decode_image": "headrace.dropins.image_reader",
    "read_images": "headrace.dropins.image_reader",
    "sample_random": "headrace.dropins.random_sources",
    "shared_list": "headrace.dropins.shared_sequence",
}
"""Defining module of each name. Names are imported lazily: most need torch, and none needs the others."""

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ModuleNotFoundError(f"headrace.{name} needs PyTorch: pip install torch", name="torch") from error


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
