"""Where photographs come from: the user's folder, the system's wallpapers, an installed package, or drawn."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from headrace.demo.natural import natural_image
from headrace.errors import EmptyDatasetError, NotFoundError

SYSTEM_FOLDERS = (Path("/usr/share/backgrounds"), Path("/usr/share/wallpapers"))
SYSTEM_AT_LEAST = 5  # fewer wallpapers than this repeat too much
SUFFIXES = {".jpg", ".jpeg"}  # what photographs are kept in; a PNG among wallpapers is mostly a drawing

# Photographs that packages bundle; their drawings and micrographs have another spectrum and stay out.
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
LEAST_SIDE_PX, LEAST_BYTES = 900, 150_000  # of a photograph in a folder: smaller ones are icons and previews
DRAWN_COUNT, DRAWN_SIZE = 12, (1600, 1200)


@dataclass(frozen=True)
class Source:
    """Photographs to cut files from: where they come from, in words, and their files; None means drawn ones."""

    origin: str
    files: tuple[Path, ...] | None

    def __len__(self) -> int:
        return DRAWN_COUNT if self.files is None else len(self.files)

    def picked(self, limit: int) -> Source:
        """Keep `limit` photographs, evenly picked, or all where there are no more."""
        if self.files is None or len(self.files) <= limit:
            return self
        return replace(self, files=tuple(self.files[index * len(self.files) // limit] for index in range(limit)))

    def load(self) -> Iterator[Image.Image]:
        """Load them, several at once, as RGB images of at most 3,000 pixels a side."""
        with ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="headrace-photographs") as pool:
            if self.files is None:
                yield from pool.map(_draw, range(DRAWN_COUNT))
            else:
                yield from pool.map(_open, self.files)


def find_source(
    folder: Path | None = None,
    *,
    system: Iterable[Path] = SYSTEM_FOLDERS,
    packaged: dict[str, tuple[str, ...]] = PACKAGED,
) -> Source:
    """Find photographs: in `folder` where one is given, else the best that is at hand.

    Raises NotFoundError and EmptyDatasetError for a `folder` that is missing or holds no photograph.
    """
    if folder is not None:
        return Source(f"photographs in {folder}", _required(folder))
    wallpapers = tuple(path for place in system for path in photographs_in(place))
    if len(wallpapers) >= SYSTEM_AT_LEAST:
        return Source("the system's wallpapers", wallpapers)
    bundled = {name: _bundled(name, members) for name, members in packaged.items()}
    if any(bundled.values()):
        names = ", ".join(name for name, files in bundled.items() if files)
        return Source(f"photographs bundled with {names}", tuple(file for files in bundled.values() for file in files))
    return Source("drawn images with a natural spectrum (no photographs were found; give yours with --photos)", None)


def photographs_in(folder: Path) -> Iterator[Path]:
    """List the image files below `folder` that are large enough to cut from, in order of their paths."""
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() in SUFFIXES and path.is_file() and path.stat().st_size > LEAST_BYTES and _is_large(path):
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


def _is_large(path: Path) -> bool:
    try:
        with Image.open(path) as image:
            return min(image.size) >= LEAST_SIDE_PX
    except OSError:  # no image after all
        return False


def _bundled(package: str, members: tuple[str, ...]) -> tuple[Path, ...]:
    """Find a package's files without importing it: only its data is wanted, and its dependencies may be absent."""
    spec = importlib.util.find_spec(package)
    folders = () if spec is None or spec.submodule_search_locations is None else spec.submodule_search_locations
    return tuple(path for folder in folders for member in members if (path := Path(folder, member)).is_file())


def _draw(seed: int) -> Image.Image:
    return Image.fromarray(natural_image(*DRAWN_SIZE, seed=seed))


def _open(path: Path) -> Image.Image:
    with Image.open(path) as file:
        image = file.convert("RGB")
    image.thumbnail((LARGEST_SIDE_PX, LARGEST_SIDE_PX))
    return image
