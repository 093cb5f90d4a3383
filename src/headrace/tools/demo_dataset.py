"""Small photographic demo dataset: photographs, found or synthesized, cropped to JPEG files of ImageNet's sizes.

Synthetic images have the spectrum and edges of photographs. They follow the dead leaves model (Lee, Mumford and Huang,
2001): overlapping opaque shapes with radii distributed as r⁻³ have the 1/f amplitude spectrum and the occlusion edges
of photographs. Leaves have a 1/f texture, so that they cost a JPEG decoder as much as a photograph.
"""

from __future__ import annotations

import hashlib
import importlib.util
import io
import os
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from headrace.data import cache_folder
from headrace.errors import EmptyDatasetError, NotFoundError

LEAVES = 400
SMALLEST_SHARE = 1 / 60  # minimum leaf radius as a fraction of the short side
TEXTURE_LEVELS = 22.0  # standard deviation of the texture, in 8-bit levels


def natural_image(width: int, height: int, *, seed: int) -> NDArray[np.uint8]:
    """Synthesize an image, uint8 of shape (height, width, 3). Equal arguments return equal images."""
    rng = np.random.default_rng(seed)
    texture = pink_noise(rng, width, height) * TEXTURE_LEVELS
    colour = _leaves(rng, width, height)
    tint = pink_noise(rng, width, height)[..., None] * rng.normal(0, 6, 3)
    return np.clip(colour + texture[..., None] + tint, 0, 255).astype(np.uint8)


def pink_noise(rng: np.random.Generator, width: int, height: int) -> NDArray[np.float64]:
    """Draw noise of shape (height, width) with a 1/f amplitude spectrum, mean 0 and standard deviation 1."""
    across, down = np.fft.rfftfreq(width)[None, :], np.fft.fftfreq(height)[:, None]
    frequency = np.hypot(across, down)
    frequency[0, 0] = np.inf  # no DC component
    spectrum = np.fft.rfft2(rng.standard_normal((height, width))) / frequency
    noise = np.fft.irfft2(spectrum, s=(height, width))
    return np.asarray(noise / noise.std())


def _leaves(rng: np.random.Generator, width: int, height: int) -> NDArray[np.float32]:
    """Draw overlapping opaque ellipses, each in one colour."""
    canvas = np.empty((height, width, 3), np.float32)
    canvas[:] = _colour(rng)
    short = min(width, height)
    low, high, share = short * SMALLEST_SHARE, short / 2, rng.random(LEAVES)
    radii = (low**-2 - share * (low**-2 - high**-2)) ** -0.5  # inverse transform sampling of the density r⁻³
    for radius in np.sort(radii)[::-1]:  # large leaves first, or they would cover small ones
        _drop_leaf(rng, canvas, float(radius))
    return canvas


def _drop_leaf(rng: np.random.Generator, canvas: NDArray[np.float32], radius: float) -> None:
    height, width = canvas.shape[:2]
    x, y = rng.uniform(0, width), rng.uniform(0, height)
    stretch, angle = rng.uniform(1, 2), rng.uniform(0, np.pi)
    reach = int(radius * stretch) + 1
    left, right = max(0, int(x) - reach), min(width, int(x) + reach + 1)
    top, bottom = max(0, int(y) - reach), min(height, int(y) + reach + 1)
    dx, dy = np.arange(left, right)[None, :] - x, np.arange(top, bottom)[:, None] - y
    along, beside = dx * np.cos(angle) + dy * np.sin(angle), dy * np.cos(angle) - dx * np.sin(angle)
    inside = (along / stretch) ** 2 + beside**2 < radius**2
    canvas[top:bottom, left:right][inside] = _colour(rng)


def _colour(rng: np.random.Generator) -> NDArray[np.float64]:
    """Draw a colour near grey, like most colours in photographs."""
    return np.asarray(rng.uniform(20, 235) + rng.normal(0, 18, 3))


SYSTEM_FOLDERS = (Path("/usr/share/backgrounds"), Path("/usr/share/wallpapers"))
SYSTEM_AT_LEAST = 5  # fewer wallpapers would repeat too often
SUFFIXES = {".jpg", ".jpeg"}  # formats of photographs; PNG wallpapers are mostly drawings

# Photographs bundled with packages, without drawings and micrographs, which have other spectra.
PACKAGED = {
    "skimage": (
        "data/astronaut.png",
        "data/chelsea.png",
        "data/coffee.png",
        "data/motorcycle_left.png",
        "data/rocket.jpg",
    ),
    "sklearn": ("datasets/images/china.jpg", "datasets/images/flower.jpg"),
}

LARGEST_SIDE_PX = 3000
LEAST_SIDE_PX, LEAST_BYTES = 900, 150_000  # smaller files in a folder are icons and previews
DRAWN_COUNT, DRAWN_SIZE = 12, (1600, 1200)


@dataclass(frozen=True)
class PhotoSource:
    """Source photographs: a description of their origin, and their files; None for synthetic images."""

    origin: str
    files: tuple[Path, ...] | None

    def __len__(self) -> int:
        return DRAWN_COUNT if self.files is None else len(self.files)

    def picked(self, limit: int) -> PhotoSource:
        """Select at most `limit` photographs, evenly spaced."""
        if self.files is None or len(self.files) <= limit:
            return self
        return replace(self, files=tuple(self.files[index * len(self.files) // limit] for index in range(limit)))

    def load(self) -> Iterator[Image.Image]:
        """Load the photographs in parallel, as RGB images of at most 3,000 pixels a side."""
        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="headrace-photographs") as pool:
            if self.files is None:
                yield from (
                    Image.fromarray(drawn)
                    for drawn in pool.map(lambda seed: natural_image(*DRAWN_SIZE, seed=seed), range(DRAWN_COUNT))
                )
            else:
                yield from pool.map(_open_photograph, self.files)


def find_source(
    folder: Path | None = None,
    *,
    system: Iterable[Path] = SYSTEM_FOLDERS,
    packaged: dict[str, tuple[str, ...]] = PACKAGED,
) -> PhotoSource:
    """Find photographs in `folder`, or if it is None, in the best available source.

    Raises NotFoundError if `folder` is missing and EmptyDatasetError if it holds no photographs.
    """
    if folder is not None:
        return PhotoSource(f"photographs in {folder}", _required(folder))
    wallpapers = tuple(path for place in system for path in photographs_in(place))
    if len(wallpapers) >= SYSTEM_AT_LEAST:
        return PhotoSource("the system's wallpapers", wallpapers)
    bundled = {name: _bundled(name, members) for name, members in packaged.items()}
    if any(bundled.values()):
        names = ", ".join(name for name, files in bundled.items() if files)
        return PhotoSource(
            f"photographs bundled with {names}", tuple(file for files in bundled.values() for file in files)
        )
    return PhotoSource(
        "drawn images with a natural spectrum (no photographs were found; give yours with --photos)", None
    )


def photographs_in(folder: Path) -> Iterator[Path]:
    """List the image files in `folder`, recursively, that are large enough to crop, in order of their paths."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file() and path.stat().st_size > LEAST_BYTES:
            with suppress(OSError), Image.open(path) as image:  # may not be an image
                if min(image.size) >= LEAST_SIDE_PX:
                    yield path


def _required(folder: Path) -> tuple[Path, ...]:
    if not folder.is_dir():
        raise NotFoundError(f"expected a folder of photographs at {folder}; no folder is there. Check --photos.")
    files = tuple(photographs_in(folder))
    if not files:
        raise EmptyDatasetError(
            f"expected photographs of at least {LEAST_SIDE_PX} pixels a side and {LEAST_BYTES // 1000} kB in {folder}; "
            "none is there. Give a folder of larger ones, or leave --photos out."
        )
    return files


def _bundled(package: str, members: tuple[str, ...]) -> tuple[Path, ...]:
    """Find a package's data files without importing it, since its dependencies may be absent."""
    spec = importlib.util.find_spec(package)
    folders = () if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    return tuple(path for folder in folders for member in members if (path := Path(folder, member)).is_file())


def _open_photograph(path: Path) -> Image.Image:
    with Image.open(path) as file:
        image = file.convert("RGB")
    image.thumbnail((LARGEST_SIDE_PX, LARGEST_SIDE_PX))
    return image


@dataclass(frozen=True)
class PhotoCrop:
    """Crop for one file: a window (left, top, right, bottom) of a photograph, resized to `size` (width, height)."""

    photograph: int
    size: tuple[int, int]
    window: tuple[int, int, int, int]


def draw_crops(sizes: Sequence[tuple[int, int]], count: int, *, seed: int) -> list[PhotoCrop]:
    """Draw `count` crops of photographs with these sizes, distributed as in ImageNet: mostly 500×375, a tenth double.

    The window is the crop's size times a zoom of 1 to 2, so that files have a photograph's detail and are not enlarged.
    Each side of the window is limited to the photograph's.
    """
    rng = random.Random(seed)
    crops = []
    for _ in range(count):
        photograph = rng.choice(range(len(sizes)))
        wide = rng.random() < 0.75
        width, height = (500, rng.choice([333, 375, 375, 400])) if wide else (rng.choice([333, 375]), 500)
        if rng.random() < 0.1:
            width, height = width * 2, height * 2
        zoom = rng.uniform(1.0, 2.0)
        whole_width, whole_height = sizes[photograph]
        window_width, window_height = min(whole_width, int(width * zoom)), min(whole_height, int(height * zoom))
        left, top = rng.randint(0, whole_width - window_width), rng.randint(0, whole_height - window_height)
        crops.append(PhotoCrop(photograph, (width, height), (left, top, left + window_width, top + window_height)))
    return crops


VERSION = 1  # increment when the same source and seed produce other files
PHOTOGRAPHS_AT_MOST = 40  # in memory, up to 20 MB each
QUALITIES = (93, 95, 96, 97, 98)
BYTES_AT_500_BY_375 = 70e3  # typical of ImageNet; quality is raised until a file reaches it


def cached_path(source: PhotoSource, count: int) -> Path:
    """Return the cache path of the dataset of `count` files; it depends on the source's photographs."""
    parts = [str(VERSION), source.origin]
    for path in source.files or ():
        status = path.stat()
        parts.append(f"{path} {status.st_size} {status.st_mtime_ns}")
    name = hashlib.sha256("\n".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:12]
    return Path(cache_folder(), "demo", f"{count}-{name}")


def write_dataset(
    photographs: Sequence[Image.Image], out: Path, count: int, *, classes: int = 20, seed: int = 0
) -> Iterator[int]:
    """Write `count` JPEGs as `out`/CLASS/NUMBER.jpg and yield each file's size in bytes.

    The write is atomic: files are written to a temporary folder next to `out` and then renamed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    cuts = draw_crops([photograph.size for photograph in photographs], count, seed=seed)

    def write(index: int) -> int:
        cut = cuts[index]
        data = encode(photographs[cut.photograph].resize(cut.size, Image.Resampling.LANCZOS, box=cut.window))
        return (unfinished / f"{index % classes:03d}" / f"{index:05d}.jpg").write_bytes(data)

    try:
        for number in range(min(classes, count)):
            (unfinished / f"{number:03d}").mkdir()
        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="headrace-demo") as pool:
            yield from pool.map(write, range(count))
        unfinished.chmod(0o755)
        unfinished.rename(out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def encode(image: Image.Image) -> bytes:
    """Encode as a 4:2:0 JPEG at the lowest quality that reaches the file size of ImageNet's images."""
    enough = BYTES_AT_500_BY_375 * image.width * image.height / (500 * 375)
    for quality in QUALITIES:
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality, subsampling="4:2:0")
        if buffer.tell() > enough:
            break
    return buffer.getvalue()
