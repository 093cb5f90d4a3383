"""Peer loader: torch's DataLoader over a Pillow dataset.

The steps equal torchvision's transforms on PIL images (RandomResizedCrop, RandomHorizontalFlip, ToTensor, Normalize),
reimplemented so that torchvision is not needed. Both sides of a comparison produce the same images.
"""

from __future__ import annotations

import math
import os
import tarfile
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from headrace.tools.bench.settings import (
    CROP_PX,
    FLIP,
    IMAGENET_MEAN,
    IMAGENET_STD,
    BenchSettings,
    ImageListing,
    Output,
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


def torch_batch_sizes(settings: BenchSettings, round_number: int) -> Iterator[int]:
    """List the images, load one long epoch, and yield the size of each batch while the batch is alive."""
    torch.manual_seed(settings.seed + round_number)
    listing = list_images(settings.path)
    batches = DataLoader(
        Photos(listing, samples(len(listing), settings), settings.output),
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads,
        worker_init_fn=partial(_end_with, os.getpid()),
    )
    for batch in batches:
        yield len(batch)


def _end_with(parent: int, worker: int) -> None:
    """Exit this worker if its parent was killed during startup.

    torch would otherwise take the process that adopted the worker for its parent and never exit.
    """
    if parent != os.getppid():
        os._exit(1)


def _uniform(low: float, high: float) -> float:
    return torch.empty(1).uniform_(low, high).item()
