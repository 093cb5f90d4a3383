"""How many images a second does the Loader make of uncompressed files, beside JPEGs of the same pictures?

    python benchmarks/pack_raw.py PHOTOS [--images 1000] [--threads 2] [--rounds 5]

PHOTOS is a folder of photographs (make_photos.py). They are scaled to a short side of 256 pixels, saved as JPEG
(quality 90), and as Y4M and PPM with the pixels of that JPEG, each in a tar in a temporary folder, in the page cache.
RandomResizedCrop(224) to uint8; rounds are interleaved. Images per second are medians; CPU time per image, with the
kernel's, is the minimum, which a busy machine changes least.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

import headrace as hr
from headrace import _core
from headrace.tools.bench.comparison import environment

SIDE, QUALITY, EPOCHS = 256, 90, 3


def jpeg_of(path: Path) -> bytes:
    buffer = io.BytesIO()
    with Image.open(path) as opened:
        picture = opened.convert("RGB")
        scale = SIDE / min(picture.size)
        size = (max(SIDE, round(picture.width * scale)), max(SIDE, round(picture.height * scale)))
        picture.resize(size, Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=QUALITY)
    return buffer.getvalue()


def ppm_of(file: bytes) -> bytes:
    pixels = np.ascontiguousarray(_core.decode_jpeg(file)[1][..., :3])
    return b"P6 %d %d 255\n" % (pixels.shape[1], pixels.shape[0]) + pixels.tobytes()


FORMS: dict[str, Callable[[bytes], bytes]] = {"jpg": lambda file: file, "y4m": _core.jpeg_planes, "ppm": ppm_of}


def write_tars(photos: Path, count: int, folder: Path) -> dict[str, float]:
    """Write a tar of each form; return the mean size of its files in bytes."""
    paths = sorted(path for path in photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not paths:
        raise SystemExit(f"{photos}: expected photographs")
    distinct = [jpeg_of(path) for path in paths[:count]]
    sizes = {}
    for form, make in FORMS.items():
        made = [make(file) for file in distinct]
        with tarfile.open(folder / f"{form}.tar", "w") as tar:
            for number in range(count):
                info = tarfile.TarInfo(f"{number:06}.{form}")
                info.size = len(made[number % len(made)])
                tar.addfile(info, io.BytesIO(made[number % len(made)]))
        sizes[form] = statistics.mean(len(made[number % len(made)]) for number in range(count))
    return sizes


def run_epoch(loader: hr.Loader) -> tuple[float, float]:
    """Return seconds of the clock and of the process's CPU time."""
    clock, cpu = time.perf_counter(), time.process_time()
    for _ in loader:
        pass
    return time.perf_counter() - clock, time.process_time() - cpu


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("photos", type=Path)
    ask.add_argument("--images", type=int, default=1000)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--rounds", type=int, default=5)
    ask.add_argument("--only", choices=FORMS, help="for a profiler")
    options = ask.parse_args()
    machine = environment()
    print(f"{machine.cpu}, {machine.cores} cores, load {os.getloadavg()[0]:.1f}, {options.threads} threads")
    with tempfile.TemporaryDirectory() as name:
        sizes = write_tars(options.photos, options.images, Path(name))
        loaders = {
            form: hr.Loader(
                hr.open(Path(name) / f"{form}.tar"), {"x": hr.Image(source="image")}, batch_size=128, output="numpy",
                view=hr.RandomResizedCrop(224, flip=0.5), threads=options.threads, seed=0,
            )
            for form in FORMS
            if options.only in (None, form)
        }  # fmt: skip
        rounds: dict[str, list[tuple[float, float]]] = {form: [] for form in loaders}
        for number in range(1 + options.rounds):  # the first fills the page cache
            for form, loader in loaders.items():
                spent = [run_epoch(loader) for _ in range(EPOCHS)]
                if number:
                    rounds[form] += spent
    print(f"{'':6}{'bytes/image':>12}{'images/s':>12}{'best':>10}{'CPU us/image':>14}")
    for form, spent in rounds.items():
        speeds = [options.images / clock for clock, _ in spent]
        cpu_us = min(cpu for _, cpu in spent) / options.images * 1e6
        print(f"{form:6}{sizes[form]:12,.0f}{statistics.median(speeds):12,.0f}{max(speeds):10,.0f}{cpu_us:14.1f}")


if __name__ == "__main__":
    main()
