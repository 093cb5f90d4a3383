"""Peer loader, torch's DataLoader over a Pillow dataset, and the sides that `--worth` compares.

The steps equal torchvision's transforms on PIL images (RandomResizedCrop, RandomHorizontalFlip, ToTensor, Normalize),
reimplemented so that torchvision is not needed. Both sides of a comparison produce the same images.
"""

from __future__ import annotations

import math
import os
import tarfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace.tools.bench.settings import (
    CROP_PX,
    FILES_AT_MOST,
    FLIP,
    IMAGENET_MEAN,
    IMAGENET_STD,
    BenchSettings,
    ImageListing,
    Output,
    headrace_batch_sizes,
    list_images,
    samples,
)

AREA_SHARES = (0.08, 1.0)
ASPECT_RATIOS = (3 / 4, 4 / 3)
TRIES = 10


class Photos(Dataset[torch.Tensor]):
    """Images of a listing as [3, 224, 224] tensors. Each worker opens and indexes a tar once."""

    def __init__(self, listing: ImageListing, indices: NDArray[np.int64], output: Output) -> None:
        self.listing = listing
        self.indices = indices
        self.output = output
        self.tars: dict[str, tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.read(*self.listing.files[self.indices[index]])
        # Crop first, like torchvision.
        cut = image.crop(crop_window(*image.size)).resize((CROP_PX, CROP_PX), Image.Resampling.BILINEAR)
        return to_tensor(flip(cut), self.output)

    def read(self, place: str, name: str | None) -> Image.Image:
        if name is None:
            with open(place, "rb") as file:
                return Image.open(file).convert("RGB")
        tar, members = self.opened(place)
        member = tar.extractfile(members[name])
        assert member is not None, "the listing holds regular files only"
        return Image.open(member).convert("RGB")

    def opened(self, place: str) -> tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]:
        """Return an open tar and its members by name."""
        if place not in self.tars:
            tar = tarfile.open(place, "r:")  # noqa: SIM115 (kept for the worker's life)
            self.tars[place] = tar, {member.name: member for member in tar}
        return self.tars[place]

    def span(self, place: str, name: str | None) -> tuple[int, int]:
        """Return the offset and size of an image in its tar; (0, 0) for a loose file."""
        if name is None:
            return 0, 0
        member = self.opened(place)[1][name]
        return member.offset_data, member.size


def crop_window(width: int, height: int) -> tuple[int, int, int, int]:
    """Draw (left, top, right, bottom) from torch's generator, like torchvision's RandomResizedCrop.get_params."""
    low, high = math.log(ASPECT_RATIOS[0]), math.log(ASPECT_RATIOS[1])
    for _ in range(TRIES):
        area = width * height * _uniform(*AREA_SHARES)
        aspect = math.exp(_uniform(low, high))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = (int(torch.randint(0, most + 1, (1,)).item()) for most in (width - w, height - h))
            return left, top, left + w, top + h
    aspect = min(max(width / height, ASPECT_RATIOS[0]), ASPECT_RATIOS[1])  # the central window
    w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def flip(image: Image.Image) -> Image.Image:
    """Flip the image horizontally with probability one half."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if _uniform(0, 1) < FLIP else image


def to_tensor(image: Image.Image, output: Output) -> torch.Tensor:
    """Convert to [3, H, W]: uint8, or float32 from 0 to 1 normalized with ImageNet's statistics."""
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
    if output == "uint8":
        return pixels
    mean, std = torch.tensor(IMAGENET_MEAN).view(3, 1, 1), torch.tensor(IMAGENET_STD).view(3, 1, 1)
    return pixels.to(torch.float32).div_(255).sub_(mean).div_(std)


def torch_batch_sizes(
    settings: BenchSettings,
    round_number: int,
    *,
    kind: type[Photos] = Photos,
    most: int = FILES_AT_MOST,
    workers: int | None = None,
    loader: Callable[..., Iterable[torch.Tensor]] = DataLoader,
    pinned: bool | None = None,
) -> Iterator[int]:
    """List the images, load one long epoch, and yield the size of each batch while the batch is alive.

    `workers` None: the settings' number of threads. If `pinned` is not None, each batch is copied to the device before
    the next is requested.
    """
    torch.manual_seed(settings.seed + round_number)
    # With ThreadDataLoader the assignment of crops to images depends on timing, which does not affect throughput.
    warnings.filterwarnings("ignore", message="torch's default generator moved")
    listing = list_images(settings.path)
    batches = loader(
        kind(listing, samples(len(listing), settings, most=most), settings.output),
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads if workers is None else workers,
        pin_memory=bool(pinned),
        worker_init_fn=partial(_end_with, os.getpid()),
    )
    for batch in batches:
        if pinned is not None:
            batch = batch.to("cuda", non_blocking=pinned)
            torch.cuda.synchronize()
        yield len(batch)


def _end_with(parent: int, worker: int) -> None:
    """Exit this worker if its parent was killed during startup.

    torch would otherwise take the process that adopted the worker for its parent and never exit.
    """
    if parent not in (os.getpid(), os.getppid()):  # with threads, the parent is this process
        os._exit(1)


def _uniform(low: float, high: float) -> float:
    return torch.empty(1).uniform_(low, high).item()


KEPT_IMAGES = 64
"""Number of images that every side reads repeatedly; decoded, they must fit in memory."""

CACHE = "ram:256MB"
"""Cache size for these images and the index of a million samples and more."""


class DroppedPhotos(Photos):
    """Photos read from files that are dropped from the page cache before each read; they must be on disk."""

    def read(self, place: str, name: str | None) -> Image.Image:
        start, size = self.span(place, name)
        drop(place, start, size)
        return super().read(place, name)


class DecodedPhotos(Photos):
    """Photos that are decoded once at construction and cached in the process."""

    def __init__(self, listing: ImageListing, indices: NDArray[np.int64], output: Output) -> None:
        super().__init__(listing, indices, output)
        files = [listing.files[index] for index in np.unique(indices)]
        self.kept = {file: super(DecodedPhotos, self).read(*file) for file in files}

    def read(self, place: str, name: str | None) -> Image.Image:
        return self.kept[place, name]


def drop(path: str, start: int = 0, size: int = 0) -> None:
    """Ask the kernel to drop a range of a file, or all of it, from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, start, size, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def can_be_dropped(path: str) -> bool:
    """Return True if the kernel drops a file on request; it does not in /dev/shm, or if others map the file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
    except BlockingIOError:
        return True
    except OSError:  # not supported by the file system
        return False
    finally:
        os.close(descriptor)
    return False


_torch = partial(torch_batch_sizes, most=KEPT_IMAGES)
_headrace = partial(headrace_batch_sizes, most=KEPT_IMAGES)
SIDES: dict[str, Callable[[BenchSettings, int], Iterator[int]]] = {
    "inline": partial(_torch, workers=0),
    "one-worker": partial(_torch, workers=1),
    "process-workers": _torch,
    "thread-workers": partial(_torch, loader=hr.ThreadDataLoader),
    "dropped": partial(_torch, kind=DroppedPhotos, workers=0),
    "decoded": partial(_torch, kind=DecodedPhotos, workers=0),
    "one-thread": partial(_headrace, threads=1, prefetch=1),
    "all-threads": partial(_headrace, prefetch=3),
    "shrunk": partial(_headrace, prefetch=3, shrink_to=256),
    "shrunk-kept": partial(_headrace, prefetch=3, shrink_to=256, cache=CACHE),
    "pageable-copies": partial(_torch, pinned=False),
    "pinned-copies": partial(_torch, pinned=True),
}
