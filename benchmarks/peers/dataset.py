"""The folders of class folders that every loader is measured on, all of hard links to few files.

long_folder      the photographs, repeated until one pass is long enough to measure: no loader meets an epoch's end
pairs_folder     the same as images/, and masks/ of the same names: cells of 150 classes, one in twelve pixels ignored
million_folder   1,000,000 tiny JPEGs in 1,000 class folders
"""

import errno
import os
import random
import shutil
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image
from task import IGNORE

MILLION = 1_000_000
CLASSES = 1000
TINY_PX = 16
MASK_CLASSES, IGNORED = 150, 1 / 12


def originals(photos):
    files = sorted(Path(photos).rglob("*.jpg"))
    if not files:
        raise SystemExit(f"no *.jpg below {photos}; make them with: python benchmarks/make_photos.py {photos}")
    return files


def long_folder(photos, folder, count):
    """Make `folder` hold `count` photographs: those of `photos` in turn, in their own class folders."""
    files = originals(photos)

    def fill(partial):
        for index, path in enumerate(islice(cycle(files), count)):
            name = f"{index // len(files):03d}-{path.name}"
            link(path, partial / path.parent.name / name)

    return made_once(folder / f"photos-{count}", fill)


def pairs_folder(photos, folder, count):
    """Make `folder` hold `count` photographs in images/ and a mask of each in masks/, one PNG a photograph."""
    files = originals(photos)

    def fill(partial):
        masks = {path: partial / "made" / f"{index}.png" for index, path in enumerate(files[:count])}
        (partial / "made").mkdir()
        for seed, (path, mask) in enumerate(masks.items()):
            with Image.open(path) as image:
                write_mask(mask, image.size, seed)
        for index, path in enumerate(islice(cycle(files), count)):
            name = f"{path.parent.name}/{index // len(files):03d}-{path.stem}"
            link(path, partial / "images" / f"{name}.jpg")
            link(masks[path], partial / "masks" / f"{name}.png")
        shutil.rmtree(partial / "made")

    return made_once(folder / f"pairs-{count}", fill)


def write_mask(path, size, seed, cells=40):
    """Write a PNG whose pixels have the class of the nearest of some points, as annotated scenes have regions."""
    draw, (width, height) = np.random.default_rng(seed), size
    x, y = draw.integers(0, width, (cells, 1, 1)), draw.integers(0, height, (cells, 1, 1))
    away = (np.arange(width) - x) ** 2 + (np.arange(height)[:, None] - y) ** 2
    classes = np.where(draw.random(cells) < IGNORED, IGNORE, draw.integers(0, MASK_CLASSES, cells))
    Image.fromarray(classes.astype(np.uint8)[away.argmin(0)]).save(path)


def million_folder(folder, count=MILLION):
    """Make `folder` hold `count` JPEGs of 16×16 pixels; each file has one link in every class folder."""
    per_class = count // CLASSES

    def fill(partial):
        draw = random.Random(0)
        first = partial / "0000"
        first.mkdir(parents=True)
        for index in range(per_class):
            (first / f"{index:04d}.jpg").write_bytes(tiny_jpeg(draw))
        for label in range(1, CLASSES):
            other = partial / f"{label:04d}"
            other.mkdir()
            for index in range(per_class):
                os.link(first / f"{index:04d}.jpg", other / f"{index:04d}.jpg")

    return made_once(folder / f"tiny-{count}", fill)


def tiny_jpeg(draw):
    image = Image.frombytes("RGB", (TINY_PX, TINY_PX), draw.randbytes(3 * TINY_PX * TINY_PX))
    encoded = BytesIO()
    image.save(encoded, "JPEG", quality=50)
    return encoded.getvalue()


def made_once(folder, fill):
    """Have `fill` make a folder under another name, and give it its own when it is complete."""
    if not folder.exists():
        partial = folder.with_name(folder.name + ".partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        fill(partial)
        partial.rename(folder)
    return folder


def link(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        shutil.copyfile(source, target)  # another file system
