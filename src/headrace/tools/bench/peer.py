"""The sides of `headrace bench --worth`: iterators over the sizes of batches, made with one technique or without.

A side makes the same images as its opposite: RandomResizedCrop and flip of the dataset's files.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr
from headrace.bench.listing import Listing, list_images
from headrace.bench.peer import Photos
from headrace.tools.bench.settings import CROP_PX, FLIP, Output, Settings, samples

BatchSizes = Iterator[int]
KEPT_IMAGES = 64
"""That every side reads, again and again: decoded, they have to fit into memory."""

CACHE = "ram:256MB"
"""For these, and the index of a million samples and more."""


def side(name: str) -> Callable[[Settings, int], BatchSizes]:
    """That of a name in bench/comparisons.py."""
    return SIDES[name]


class DroppedPhotos(Photos):
    """Files that the kernel has dropped from memory before each read. Once written to the disk they can be dropped."""

    def read(self, place: str, name: str | None) -> Image.Image:
        start, size = self.span(place, name)
        drop(place, start, size)
        return super().read(place, name)


class DecodedPhotos(Photos):
    """Images that are decoded at the beginning, and kept in the process."""

    def __init__(self, listing: Listing, indices: NDArray[np.int64], output: Output) -> None:
        super().__init__(listing, indices, output)
        files = [listing.files[index] for index in np.unique(indices)]
        self.kept = {file: super(DecodedPhotos, self).read(*file) for file in files}

    def read(self, place: str, name: str | None) -> Image.Image:
        return self.kept[place, name]


def drop(path: str, start: int = 0, size: int = 0) -> None:
    """Ask the kernel to let go of a piece of a file, or of all of it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def can_be_dropped(path: str) -> bool:
    """Whether the kernel lets go of a file when it is asked: not of one in /dev/shm, or that others have mapped."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # a file system that cannot tell
        return False
    finally:
        os.close(descriptor)
    return False


def _photos(kind: type[Photos]) -> Callable[[Settings, int], Photos]:
    def made(settings: Settings, round_number: int) -> Photos:
        torch.manual_seed(settings.seed + round_number)
        listing = list_images(settings.path)
        return kind(listing, samples(len(listing), settings, most=KEPT_IMAGES), settings.output)

    return made


def _over(kind: type[Photos], loader: Callable[[Photos, Settings], Iterable[torch.Tensor]]) -> Any:
    def batch_sizes(settings: Settings, round_number: int) -> BatchSizes:
        for batch in loader(_photos(kind)(settings, round_number), settings):
            yield len(batch)

    return batch_sizes


def _inline(data: Photos, settings: Settings) -> Iterable[torch.Tensor]:
    return DataLoader(data, batch_size=settings.batch_size, shuffle=True)


def _one_worker(data: Photos, settings: Settings) -> Iterable[torch.Tensor]:
    return DataLoader(data, batch_size=settings.batch_size, shuffle=True, num_workers=1)


def _processes(data: Photos, settings: Settings) -> Iterable[torch.Tensor]:
    return DataLoader(data, batch_size=settings.batch_size, shuffle=True, num_workers=settings.threads)


def _threads(data: Photos, settings: Settings) -> Iterable[torch.Tensor]:
    # Which crop falls to which image hangs on the threads' timing, and says nothing of the pace.
    warnings.filterwarnings("ignore", message="torch's default generator moved")
    return hr.ThreadDataLoader(data, batch_size=settings.batch_size, shuffle=True, num_workers=settings.threads)


def _copied(*, pinned: bool) -> Callable[[Photos, Settings], Iterable[torch.Tensor]]:
    """On the device, one after the other, each there before the next is taken."""

    def batches(data: Photos, settings: Settings) -> Iterator[torch.Tensor]:
        loader = DataLoader(
            data, batch_size=settings.batch_size, shuffle=True, num_workers=settings.threads, pin_memory=pinned
        )
        for batch in loader:
            moved = batch.to("cuda", non_blocking=pinned)
            torch.cuda.synchronize()
            yield moved

    return batches


def _headrace(threads: int | None, prefetch: int, *, shrink_to: int | None = None, cache: str | None = None) -> Any:
    """`threads` None for as many as the settings allow."""

    def batch_sizes(settings: Settings, round_number: int) -> BatchSizes:
        data = hr.open(settings.path)
        normalize = hr.IMAGENET if settings.output == "float32" else None
        loader = hr.Loader(
            data.select(samples(len(data), settings, most=KEPT_IMAGES)),
            {"image": hr.Image(dtype=settings.output, normalize=normalize, shrink_to=shrink_to)},
            view=hr.RandomResizedCrop(CROP_PX, flip=FLIP),
            batch_size=settings.batch_size,
            shuffle=True,
            seed=settings.seed + round_number,
            threads=settings.threads if threads is None else threads,
            prefetch=prefetch,
            cache=cache,
        )
        for batch in loader:
            yield len(batch["image"])

    return batch_sizes


SIDES: dict[str, Callable[[Settings, int], BatchSizes]] = {
    "inline": _over(Photos, _inline),
    "one-worker": _over(Photos, _one_worker),
    "process-workers": _over(Photos, _processes),
    "thread-workers": _over(Photos, _threads),
    "dropped": _over(DroppedPhotos, _inline),
    "decoded": _over(DecodedPhotos, _inline),
    "one-thread": _headrace(1, 1),
    "all-threads": _headrace(None, 3),
    "shrunk": _headrace(None, 3, shrink_to=256),
    "shrunk-kept": _headrace(None, 3, shrink_to=256, cache=CACHE),
    "pageable-copies": _over(Photos, _copied(pinned=False)),
    "pinned-copies": _over(Photos, _copied(pinned=True)),
}
