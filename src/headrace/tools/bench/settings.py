"""Settings of a comparison, the window of a run, the list of images, and Headrace's loader."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import DatasetError, EmptyDatasetError

Output = Literal["uint8", "float32"]

CROP_PX = 224
FLIP = 0.5
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
FILES_AT_MOST = 2000  # so that the page cache holds the data and loaders are compared, not the disk


@dataclass(frozen=True, kw_only=True)
class BenchSettings:
    """Settings of one comparison: RandomResizedCrop(224) and flip, `threads` cores and workers for each loader."""

    path: str
    threads: int
    batch_size: int = 256
    output: Output = "uint8"
    rounds: int = 3
    images: int = 6000
    seed: int = 0
    against: str | None = None
    """User's `module:make_loader` that replaces torch's DataLoader."""

    @property
    def loaders(self) -> tuple[str, str]:
        """Names of the compared loaders, Headrace first."""
        return "headrace", "torch" if self.against is None else "yours"


@dataclass(frozen=True, kw_only=True)
class RunWindow:
    """Batches of one run: `warm` before the clock starts, `counted` while it runs, `tail` after it stops.

    The tail keeps every worker busy until the end of the counted part, so that no loader's drain is timed.
    """

    warm: int
    counted: int
    tail: int

    @property
    def batches(self) -> int:
        return self.warm + self.counted + self.tail


def headrace_batch_sizes(settings: BenchSettings, round_number: int) -> Iterator[int]:
    """Open the dataset, load one long epoch, and yield the size of each batch while the batch is alive."""
    import headrace as hr

    data = hr.open(settings.path)
    normalize = hr.IMAGENET if settings.output == "float32" else None
    loader = hr.Loader(
        data.select(samples(len(data), settings)),
        {"image": hr.Image(dtype=settings.output, normalize=normalize)},
        view=hr.RandomResizedCrop(CROP_PX, flip=FLIP),
        batch_size=settings.batch_size,
        shuffle=True,
        seed=settings.seed + round_number,
        threads=settings.threads,
    )
    for batch in loader:
        yield len(batch["image"])


def window(settings: BenchSettings) -> RunWindow:
    """Return the window of a run: warm-up and tail of 2 batches per worker, and at least `images` counted."""
    in_flight = max(6, 2 * settings.threads)
    counted = max(-(-settings.images // settings.batch_size), 2 * in_flight)
    return RunWindow(warm=in_flight, counted=counted, tail=in_flight)


def samples(available: int, settings: BenchSettings) -> NDArray[np.int64]:
    """Return the samples of a run: one long epoch over at most `FILES_AT_MOST` spread samples, repeated as needed.

    A single epoch avoids stalls at epoch boundaries, where a loader refills its queue.
    """
    kept = min(available, FILES_AT_MOST)
    picked = np.arange(kept, dtype=np.int64) * available // kept
    return np.resize(picked, window(settings).batches * settings.batch_size)


@dataclass(frozen=True)
class ImageListing:
    """Images as (place, name): a file and None, or a tar and its member's name."""

    files: tuple[tuple[str, str | None], ...]

    def __len__(self) -> int:
        return len(self.files)


def list_images(where: str) -> ImageListing:
    """List the images of a folder, a tar, or a pattern of tars, by file extension.

    Raises EmptyDatasetError if there are none, DatasetError if a file is not a tar.
    """
    from PIL import Image  # not imported in Headrace's runs, where it would count as memory

    from headrace.data import expand_pattern

    Image.init()
    endings = frozenset(Image.EXTENSION)
    if os.path.isdir(where):
        found = sorted(path for path in Path(where).rglob("*") if path.suffix.lower() in endings and path.is_file())
        files: list[tuple[str, str | None]] = [(str(path), None) for path in found]
    else:
        tars = [where] if os.path.isfile(where) else expand_pattern(where)
        files = [found for tar in tars for found in _in_tar(tar, endings)]
    if not files:
        raise EmptyDatasetError(
            f"expected images to compare on in {where}; none is there. Give a folder or a tar of them."
        )
    return ImageListing(tuple(files))


def _in_tar(path: str, endings: frozenset[str]) -> list[tuple[str, str | None]]:
    try:
        with tarfile.open(path, "r:") as tar:
            members = [member.name for member in tar if member.isfile()]
    except tarfile.ReadError as error:
        raise DatasetError(
            f"{path}: expected a folder of images or an uncompressed tar to compare on, got another file ({error}). "
            "Give the folder or the tar that holds the images."
        ) from error
    return [(path, name) for name in members if PurePosixPath(name).suffix.lower() in endings]
