"""Images of every kind, sound and not, whose sizes are asked for, and the datasets that they lie in."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image
from zip_files import zip_members

import headrace.data as data

LARGE_PROFILE = np.random.default_rng(0).bytes(200_000)
ORIENTATION = 0x0112


def encoded(width: int, height: int, kind: str, mode: str = "RGB", **options: object) -> bytes:
    buffer = io.BytesIO()
    Image.new(mode, (width, height), 90).save(buffer, kind, **options)
    return buffer.getvalue()


def exif_of(orientation: int, *, filler: int = 0) -> Image.Exif:
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    exif[0x010E] = "x" * filler  # a description
    return exif


GOOD = {
    "baseline.jpg": encoded(40, 30, "JPEG"),
    "progressive.jpg": encoded(31, 57, "JPEG", progressive=True),
    "grey.jpg": encoded(17, 19, "JPEG", mode="L"),
    "cmyk.jpg": encoded(23, 11, "JPEG", mode="CMYK"),
    "exif.jpg": encoded(301, 200, "JPEG", exif=exif_of(1, filler=60_000)),
    "profile.jpg": encoded(300, 201, "JPEG", icc_profile=LARGE_PROFILE),
    "both.jpg": encoded(300, 202, "JPEG", exif=exif_of(6, filler=60_000), icc_profile=LARGE_PROFILE),
    "plain.png": encoded(29, 31, "PNG"),
    "profile.png": encoded(28, 32, "PNG", icc_profile=LARGE_PROFILE),
    "depth.png": encoded(27, 33, "PNG", mode="I;16"),
    "palette.png": encoded(26, 34, "PNG", mode="P"),
    "a.webp": encoded(13, 14, "WEBP"),
    "a.gif": encoded(15, 16, "GIF", mode="P"),
    "a.bmp": encoded(18, 20, "BMP"),
    "a.tiff": encoded(21, 22, "TIFF"),
}
BAD = {
    "empty.jpg": b"",
    "text.jpg": b"no image at all",
    "cut.jpg": GOOD["baseline.jpg"][:60],
    "cut_late.jpg": GOOD["profile.jpg"][:150_000],
    "no_scan.jpg": GOOD["baseline.jpg"][:2] + b"\xff\xd9",
    "cut.png": GOOD["plain.png"][:20],
    "cut.webp": GOOD["a.webp"][:20],
}
FILES = {f"{number:02d}/{name}": content for number, (name, content) in enumerate((GOOD | BAD).items())}


def by_pillow(content: bytes) -> tuple[int, int]:
    """Height and width; zeros for what Pillow does not open."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            return image.height, image.width
    except OSError:
        return 0, 0


EXPECTED = np.array([by_pillow(content) for content in FILES.values()])


def write_files(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def as_samples(files: dict[str, bytes]) -> dict[str, bytes]:
    """One extension for all, so that an archive has one column of them; a sample of another has no image."""
    return {f"{number:02d}.img": content for number, content in enumerate(files.values())} | {"99.cls": b"1"}


def open_folder(root: Path) -> tuple[data.Dataset, str]:
    return data.open(write_files(root / "files", FILES), classes=False), "image"


def open_tar(root: Path, make_tar: Callable[..., Path]) -> tuple[data.Dataset, str]:
    return data.open(make_tar("a.tar", as_samples(FILES))), "img"


def open_zip(root: Path, method: int) -> tuple[data.Dataset, str]:
    return data.open(zip_members(root / "a.zip", as_samples(FILES), method)), "img"


def open_manifest(root: Path, archive: str | None) -> tuple[data.Dataset, str]:
    with (root / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["path"], *([name] for name in FILES), [""]])
    return data.open(root / "list.csv", root=root / (archive or "files")), "path"


SOURCES = ("folder", "tar", "zip stored", "zip deflated", "manifest", "manifest of a tar")


def open_source(name: str, root: Path, make_tar: Callable[..., Path]) -> tuple[data.Dataset, str]:
    """A dataset of all files in turn, then, but in a folder, a sample without an image; and the column's name."""
    match name:
        case "folder":
            return open_folder(root)
        case "tar":
            return open_tar(root, make_tar)
        case "zip stored":
            return open_zip(root, zipfile.ZIP_STORED)
        case "zip deflated":
            return open_zip(root, zipfile.ZIP_DEFLATED)
        case "manifest":
            write_files(root / "files", FILES)
            return open_manifest(root, None)
        case _:
            make_tar("a.tar", FILES)
            return open_manifest(root, "a.tar")


def expected_of(dataset: data.Dataset) -> np.ndarray:
    return np.concatenate([EXPECTED, np.zeros((len(dataset) - len(EXPECTED), 2), int)])
