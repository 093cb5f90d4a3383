"""The peer, torch's DataLoader over a Pillow dataset, and the sides that `--worth` compares.

The steps are those of torchvision's transforms on PIL images (RandomResizedCrop, RandomHorizontalFlip, ToTensor,
Normalize), written out here so that torchvision is not needed. A side makes the same images as its opposite.
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
    """Images of a listing as [3, 224, 224] tensors; a tar is opened, and its names indexed, once in each worker."""

    def __init__(self, listing: ImageListing, indices: NDArray[np.int64], output: Output) -> None:
        self.listing = listing
        self.indices = indices
        self.output = output
        self.tars: dict[str, tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = self.read(*self.listing.files[self.indices[index]])
        # By way of a crop, as torchvision does.
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
        """Return a tar and its members by name."""
        if place not in self.tars:
            tar = tarfile.open(place, "r:")  # noqa: SIM115 (kept for the worker's life)
            self.tars[place] = tar, {member.name: member for member in tar}
        return self.tars[place]

    def span(self, place: str, name: str | None) -> tuple[int, int]:
        """Offset and size of a file in what holds it; 0 and 0 of a whole file."""
        if name is None:
            return 0, 0
        member = self.opened(place)[1][name]
        return member.offset_data, member.size


def crop_window(width: int, height: int) -> tuple[int, int, int, int]:
    """Draw (left, top, right, bottom) from torch's random source: torchvision's RandomResizedCrop.get_params."""
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
    """Mirror left and right with probability one half."""
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if _uniform(0, 1) < FLIP else image


def to_tensor(image: Image.Image, output: Output) -> torch.Tensor:
    """Convert to [3, H, W]: uint8 as it is, or float32 from 0 to 1 and then normalised with ImageNet's figures."""
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
    """List the images, load one long epoch, and yield the size of each batch while it is held.

    `workers` None: as many as the settings have threads. `pinned` is given where batches go to the device, one after
    the other, each there before the next is taken.
    """
    torch.manual_seed(settings.seed + round_number)
    # Which crop falls to which image hangs on a ThreadDataLoader's timing, and says nothing of the pace.
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
    """End this worker where its parent was killed as it started.

    torch then takes its foster parent for its own, and never misses it.
    """
    if parent not in (os.getpid(), os.getppid()):  # a thread's process is its parent's
        os._exit(1)


def _uniform(low: float, high: float) -> float:
    return torch.empty(1).uniform_(low, high).item()


KEPT_IMAGES = 64
"""That every side reads, again and again: decoded, they have to fit into memory."""

CACHE = "ram:256MB"
"""For these, and the index of a million samples and more."""


class DroppedPhotos(Photos):
    """Files that the kernel has dropped from memory before each read. Once written to the disk they can be dropped."""

    def read(self, place: str, name: str | None) -> Image.Image:
        start, size = self.span(place, name)
        drop(place, start, size)
        return super().read(place, name)


class DecodedPhotos(Photos):
    """Images that are decoded at the beginning, and kept in the process."""

    def __init__(self, listing: ImageListing, indices: NDArray[np.int64], output: Output) -> None:
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
    """Return whether the kernel drops a file when it is asked: not one in /dev/shm, or that others have mapped."""
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
