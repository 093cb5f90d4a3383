"""What does albumentations cost in `map=` with `map_workers`, beside torch's DataLoader with as many workers?

    python benchmarks/map_workers.py FOLDER [--files 1500] [--workers 2] [--rounds 7] [--batch-size 64]

Both sides load the same photographs, take the same window from the middle of each (so that a batch is of one size), and
put it through the same transform: RandomCrop, HorizontalFlip, ColorJitter, Normalize. Headrace decodes in its native
threads and maps in processes; DataLoader's workers decode by OpenCV, or by Pillow, and transform.

    throughput    images a second over an epoch without its first batch, and the CPU time of an image, all processes
                  together, which says more where others use the machine too
    first batch   from iter(loader) to the first batch: processes that start, in an epoch that begins

Rounds are interleaved; medians are printed with their quartiles, and the ratio of each round's pair.
"""

import os
import random
import time
from functools import partial

import albumentations
import cv2
import numpy as np
import torch
from harness import Mapped, arguments, described, in_turns, jpegs, machine, print_quartiles
from PIL import Image
from torch.utils.data import DataLoader

import headrace as hr
from headrace.tools.bench.runs import cpu_s, tree

WINDOW_PX, CROP_PX = 288, 224
transform = albumentations.Compose([
    albumentations.RandomCrop(CROP_PX, CROP_PX), albumentations.HorizontalFlip(), albumentations.ColorJitter(),
    albumentations.Normalize(),
])  # fmt: skip


def augment(sample, rng):
    """Transform a sample by its own random source."""
    transform.set_random_state(rng, random.Random(int(rng.integers(1 << 63))))
    pixels = transform(image=sample["image"].permute(1, 2, 0).numpy())["image"]
    return {"image": torch.from_numpy(pixels).permute(2, 0, 1), "label": sample["label"]}


def decoded(path, decode):
    pixels = decode(path)
    top, left = ((size - WINDOW_PX) // 2 for size in pixels.shape[:2])
    pixels = transform(image=pixels[top : top + WINDOW_PX, left : left + WINDOW_PX])["image"]
    return torch.from_numpy(pixels).permute(2, 0, 1), 0


def by_opencv(path):
    return cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def by_pillow(path):
    return np.asarray(Image.open(path).convert("RGB"))


def one_epoch(loader):
    """Return images/s and CPU seconds an image after the first batch, and the seconds to the first batch."""
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first_s, processes = time.perf_counter() - began, tree(os.getpid())
    count, cpu, start = 0, cpu_s(processes), time.perf_counter()
    for number, batch in enumerate(batches, 2):
        count += len(batch["image"] if isinstance(batch, dict) else batch[0])
        if number == len(loader):  # before the workers end, and their times with them
            elapsed, cpu = time.perf_counter() - start, cpu_s(processes) - cpu
    return count / elapsed, cpu / count, first_s


def main():
    args = arguments(__doc__, "folder", files=1500, workers=2, rounds=7, batch_size=64)
    paths = jpegs(args.folder, args.files, more_than=2 * args.batch_size)
    files, data = list(map(str, paths)), hr.open(args.folder)
    cv2.setNumThreads(1)
    print(f"{described(paths)}; batches of {args.batch_size}, {args.workers} workers, {args.rounds} rounds;")
    print(f"albumentations {albumentations.__version__}; {machine()}")
    own = {"map": augment, "map_workers": args.workers, "view": hr.CenterCrop(WINDOW_PX)}
    fields, options = {"image": hr.Image(), "label": hr.Label()}, {"batch_size": args.batch_size, "shuffle": True}
    loaders = {"Headrace": hr.Loader(data.select(range(len(files))), fields, **options, **own)}
    for name, decode in (("OpenCV", by_opencv), ("Pillow", by_pillow)):
        photos = Mapped(files, partial(decoded, decode=decode))
        loaders[f"DataLoader, {name}"] = DataLoader(photos, num_workers=args.workers, **options)
    cases = {name: partial(one_epoch, loader) for name, loader in loaders.items()}
    runs = in_turns(cases, args.rounds, warm_up=1)
    for number, (title, unit, scale) in enumerate(
        (("throughput", "images/s", 1), ("CPU time", "us", 1e6), ("first batch", "ms", 1e3))
    ):
        print(title)
        figures = {name: [run[number] for run in each] for name, each in runs.items()}
        print_quartiles(figures, unit, scale, more_is_better=number == 0)


if __name__ == "__main__":
    main()
