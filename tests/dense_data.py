"""Scenes for dense prediction: RGB, 16-bit depth, a palette mask and normals of one geometry, in a tar with a list."""

from __future__ import annotations

import io
import tarfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from loader_data import add_member, encode, photograph
from PIL import Image

import headrace as hr

COLUMNS = ["rgb", "depth", "mask", "normals"]
CLASSES = 21
COUNT = 24


@dataclass(frozen=True)
class Scene:
    """What the files of one sample hold; depth in millimetres."""

    rgb: np.ndarray
    depth: np.ndarray
    mask: np.ndarray
    normals: np.ndarray


def size_of(number: int) -> tuple[int, int]:
    """Height and width."""
    return 40 + 3 * (number % 5), 48 + 5 * (number % 4)


@cache
def scene(number: int) -> Scene:
    height, width = size_of(number)
    rng = np.random.default_rng(number)
    y, x = np.mgrid[0:height, 0:width]
    depth = (1500 + 20 * y + 7 * x + rng.integers(0, 300, (height, width))).astype(np.uint16)
    depth[rng.random((height, width)) < 0.1] = 0
    blocks = rng.integers(0, CLASSES, (height // 8 + 1, width // 8 + 1))
    mask = blocks[y // 8, x // 8].astype(np.uint8)
    mask[rng.random((height, width)) < 0.05] = 255
    return Scene(
        np.asarray(photograph(number, width, height)),
        depth,
        mask,
        rng.integers(0, 256, (height, width, 3)).astype(np.uint8),
    )


def palette_png(mask: np.ndarray) -> bytes:
    picture = Image.fromarray(mask)
    picture.putpalette([value for entry in range(256) for value in (entry, 255 - entry, entry * 7 % 256)])
    return encode(picture, "PNG")


def files_of(number: int) -> dict[str, bytes]:
    """By column."""
    found = scene(number)
    return {
        "rgb": encode(Image.fromarray(found.rgb), "PNG"),
        "depth": encode(Image.fromarray(found.depth), "PNG"),
        "mask": palette_png(found.mask),
        "normals": encode(Image.fromarray(found.normals), "PNG"),
    }


def write_tar(root: Path, count: int = COUNT) -> hr.Dataset:
    """Members begin with "./", as Hypersim's do; the list does not name them so."""
    root.mkdir(parents=True, exist_ok=True)
    lines = []
    with tarfile.open(root / "scenes.tar", "w") as tar:
        for number in range(count):
            names = {column: f"ai_{number:03}/{column}.png" for column in COLUMNS}
            for column, data in files_of(number).items():
                add_member(tar, "./" + names[column], data)
            lines.append(" ".join(names.values()))
    (root / "list.txt").write_text("\n".join(lines) + "\n")
    return hr.open(root / "list.txt", root=root / "scenes.tar", columns=COLUMNS)


def one_sample(root: Path, **columns: bytes) -> hr.Dataset:
    """A dataset of a single sample, whose files hold these bytes."""
    root.mkdir(parents=True, exist_ok=True)
    for column, data in columns.items():
        (root / column).write_bytes(data)
    (root / "list.txt").write_text(" ".join(columns) + "\n")
    return hr.open(root / "list.txt", root=root, columns=list(columns))


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()
