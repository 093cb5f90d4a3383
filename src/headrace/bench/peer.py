"""The peer: torch's DataLoader over a Dataset that decodes, crops and resizes with Pillow, as most scripts do.

The steps are those of torchvision's transforms on PIL images (RandomResizedCrop, RandomHorizontalFlip, ToTensor,
Normalize), written out here so that torchvision is not needed.
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

from headrace.bench.listing import Listing, list_images
from headrace.tools.bench.settings import CROP_PX, FLIP, IMAGENET_MEAN, IMAGENET_STD, Output, Settings, samples

AREA_SHARES = (0.08, 1.0)
ASPECT_RATIOS = (3 / 4, 4 / 3)
TRIES = 10


class Photos(Dataset[torch.Tensor]):
    """Images of a listing as [3, 224, 224] tensors; a tar is opened, and its names indexed, once in each worker."""

    def __init__(self, listing: Listing, indices: NDArray[np.int64], output: Output) -> None:
        self.listing = listing
        self.indices = indices
        self.output = output
        self.tars: dict[str, tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]] = {}

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> torch.Tensor:
        image = flip(random_resized_crop(self.read(*self.listing.files[self.indices[index]])))
        return to_tensor(image, self.output)

    def read(self, place: str, name: str | None) -> Image.Image:
        if name is None:
            with open(place, "rb") as file:
                return Image.open(file).convert("RGB")
        tar, members = self.opened(place)
        member = tar.extractfile(members[name])
        assert member is not None, "the listing holds regular files only"
        return Image.open(member).convert("RGB")

    def opened(self, place: str) -> tuple[tarfile.TarFile, dict[str, tarfile.TarInfo]]:
        """A tar and its members by name."""
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


def random_resized_crop(image: Image.Image) -> Image.Image:
    """Crop a random window and resize it to 224×224, bilinear and antialiased, by way of a crop as torchvision does."""
    return image.crop(crop_window(*image.size)).resize((CROP_PX, CROP_PX), Image.Resampling.BILINEAR)


def crop_window(width: int, height: int) -> tuple[int, int, int, int]:
    """Draw (left, top, right, bottom) from torch's random source: torchvision's RandomResizedCrop.get_params."""
    low, high = math.log(ASPECT_RATIOS[0]), math.log(ASPECT_RATIOS[1])
    for _ in range(TRIES):
        area = width * height * _uniform(*AREA_SHARES)
        aspect = math.exp(_uniform(low, high))
        w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
        if 0 < w <= width and 0 < h <= height:
            left, top = _integer(width - w), _integer(height - h)
            return left, top, left + w, top + h
    return _central_window(width, height)


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


def batch_sizes(settings: Settings, round_number: int) -> Iterator[int]:
    """List the images, load one long epoch, and yield the size of each batch while it is held."""
    torch.manual_seed(settings.seed + round_number)
    listing = list_images(settings.path)
    data = Photos(listing, samples(len(listing), settings), settings.output)
    loader = DataLoader(
        data,
        batch_size=settings.batch_size,
        shuffle=True,
        num_workers=settings.threads,
        worker_init_fn=partial(_end_with, os.getpid()),
    )
    for batch in loader:
        yield len(batch)


def _end_with(parent: int, worker: int) -> None:
    """End this worker where its parent was killed as it started: torch then takes its foster parent for its own, and
    never misses it."""
    if os.getppid() != parent:
        os._exit(1)


def _central_window(width: int, height: int) -> tuple[int, int, int, int]:
    aspect = min(max(width / height, ASPECT_RATIOS[0]), ASPECT_RATIOS[1])
    w, h = min(width, round(height * aspect)), min(height, round(width / aspect))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


def _uniform(low: float, high: float) -> float:
    return torch.empty(1).uniform_(low, high).item()


def _integer(most: int) -> int:
    return int(torch.randint(0, most + 1, (1,)).item())
