"""What does `cached` save a DataLoader in later epochs, and cost in the first?

    python benchmarks/cached_dataset.py --photos FOLDER [--images 600] [--workers 2] [--rounds 3]

A Dataset as scripts have it decodes JPEGs with Pillow and resizes them to 256 pixels (short side), then crops at
random, flips and converts. With `cached`, `load` is what comes before the crop. Each round takes, one after another: an
epoch without, the first epoch with (an empty cache in RAM), and the second with. Medians of images/s, and their ratios.
Then, in one process: what a miss costs beyond `load` itself, as a share of it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import headrace as hr

SIDE, CROP, BATCH = 256, 224, 64


class Photos(Dataset[Any]):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths

    def __len__(self) -> int:
        return len(self.paths)

    def load(self, index: int) -> Image.Image:
        with Image.open(self.paths[index]) as image:
            whole = image.convert("RGB")
        scale = SIDE / min(whole.size)
        return whole.resize((max(SIDE, round(whole.width * scale)), max(SIDE, round(whole.height * scale))))

    def __getitem__(self, index: int) -> torch.Tensor:
        return augment(self.load(index))


def augment(image: Image.Image) -> torch.Tensor:
    left = int(torch.randint(image.width - CROP + 1, ()))
    top = int(torch.randint(image.height - CROP + 1, ()))
    cropped = image.crop((left, top, left + CROP, top + CROP))
    if torch.rand(()) < 0.5:
        cropped = cropped.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.asarray(cropped).copy()).permute(2, 0, 1)


def epoch_s(dataset: Any, workers: int) -> float:
    begin = time.perf_counter()
    for _ in DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=workers):
        pass
    return time.perf_counter() - begin


def miss_share(photos: Photos, images: int) -> float:
    """CPU time of first samples with `cached` over those of `load` alone, less one."""
    dataset = hr.cached(photos, load=photos.load, cache="ram:2GB")
    shares = []
    for index in range(min(images, len(photos))):
        begin = time.thread_time_ns()
        photos.load(index)
        middle = time.thread_time_ns()
        dataset[index]
        shares.append((time.thread_time_ns() - middle) / (middle - begin) - 1)
    return statistics.median(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=Path, required=True)
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    found = sorted(path for path in arguments.photos.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    photos = Photos([found[at % len(found)] for at in range(arguments.images)])
    times: dict[str, list[float]] = {"without": [], "first epoch with": [], "second epoch with": []}
    stats = None
    for _ in range(arguments.rounds):
        dataset = hr.cached(photos, load=photos.load, augment=augment, cache="ram:2GB")
        times["without"].append(epoch_s(photos, arguments.workers))
        times["first epoch with"].append(epoch_s(dataset, arguments.workers))
        times["second epoch with"].append(epoch_s(dataset, arguments.workers))
        stats = dataset.stats()
    plain = statistics.median(times["without"])
    print(f"{arguments.images:,} images, {arguments.workers} workers, medians of {arguments.rounds} rounds")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"{name:18} {arguments.images / median:8,.0f} images/s  {plain / median:5.2f} ×")
    print(f"a miss costs {miss_share(photos, 200):+.1%} of load's CPU time")
    print(stats)


if __name__ == "__main__":
    main()
