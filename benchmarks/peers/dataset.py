"""The two folders of class folders that every loader is measured on, both of hard links to few files.

long_folder      the photographs, repeated until one pass is long enough to measure: no loader meets an epoch's end
million_folder   1,000,000 tiny JPEGs in 1,000 class folders
"""

import errno
import os
import random
import shutil
from io import BytesIO
from itertools import cycle, islice
from pathlib import Path

from PIL import Image

MILLION = 1_000_000
CLASSES = 1000
TINY_PX = 16


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
