"""Small image data for the loader's tests: mixed kinds of JPEG and PNG in four classes, as folder, tar and zip."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import headrace as hr

CLASSES = ("ant", "bee", "cat", "dog")
COUNT = 40
"""Samples in all, ten a class."""


def photograph(number: int, width: int, height: int) -> Image.Image:
    """Smooth colours with some texture, as a photograph has, so that JPEG artefacts stay small."""
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0:height, 0:width]
    waves = rng.uniform(0.02, 0.12, (3, 2))
    phases = rng.uniform(0, 6.3, 3)
    picture = np.stack([127 + 90 * np.sin(a * x + b * y + p) for (a, b), p in zip(waves, phases, strict=True)], axis=-1)
    picture += rng.normal(0, 4, picture.shape)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


def encode(picture: Image.Image, kind: str = "JPEG", **options: object) -> bytes:
    out = io.BytesIO()
    picture.save(out, kind, **options)
    return out.getvalue()


def encoded(number: int) -> tuple[str, bytes]:
    """File extension and bytes of image `number`: every kind in turn."""
    picture = photograph(number, 48 + 5 * (number % 7), 40 + 3 * (number % 11))
    match number % 8:
        case 0 | 1 | 2:
            return "jpg", encode(picture, quality=90, subsampling=number % 8)
        case 3:
            return "jpg", encode(picture, quality=85, progressive=True)
        case 4:
            return "jpg", encode(picture.convert("L"), quality=90)
        case 5:
            return "png", encode(picture, "PNG")
        case 6:
            return "png", encode(picture.quantize(64), "PNG")
        case _:
            return "png", encode(picture.convert("L"), "PNG")


def write_folder(root: Path, count: int = COUNT) -> Path:
    """Class folders; sample k of the opened dataset is image k."""
    for number in range(count):
        extension, data = encoded(number)
        path = root / CLASSES[number * len(CLASSES) // count] / f"{number:04}.{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return root


def write_tar(path: Path, count: int = COUNT) -> Path:
    """A WebDataset tar of the same images, with `.cls` and `.txt` members."""
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            extension, data = encoded(number)
            label = number * len(CLASSES) // count
            add_member(tar, f"{number:04}.{extension}", data)
            add_member(tar, f"{number:04}.cls", str(label).encode())
            add_member(tar, f"{number:04}.txt", f"number {number}".encode())
    return path


def write_zip(path: Path, count: int = COUNT, method: int = zipfile.ZIP_DEFLATED) -> Path:
    """A zip of the same members as the tar's."""
    with zipfile.ZipFile(path, "w", method) as archive:
        for number in range(count):
            extension, data = encoded(number)
            archive.writestr(f"{number:04}.{extension}", data)
            archive.writestr(f"{number:04}.cls", str(label_of(number, count)))
            archive.writestr(f"{number:04}.txt", f"number {number}")
    return path


def add_member(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    tar.addfile(member, io.BytesIO(data))


def label_of(number: int, count: int = COUNT) -> int:
    return number * len(CLASSES) // count


def load_crops(data: Any, **options: Any) -> hr.Loader:
    """Loader of shuffled batches of four random crops and their labels; `options` add arguments or replace these."""
    fields = {"image": hr.Image(), "label": hr.Label()}
    given = {"view": hr.RandomResizedCrop(24), "batch_size": 4, "shuffle": True, "output": "numpy", "threads": 2}
    return hr.Loader(data, **({"fields": fields} | given | options))
