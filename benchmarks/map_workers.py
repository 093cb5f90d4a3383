"""What does albumentations cost in `map=` with `map_workers`, beside torch's DataLoader with as many workers?

Both sides load the same photographs, take the same window from the middle of each (so that a batch is of one size), and
put it through the same transform: RandomCrop, HorizontalFlip, ColorJitter, Normalize. Headrace decodes in its native
threads and maps in processes; DataLoader's workers decode by OpenCV, or by Pillow, and transform.

    throughput    images a second over an epoch without its first batch, and the CPU time of an image, all processes
                  together, which says more where others use the machine too
    first batch   from iter(loader) to the first batch: processes that start, in an epoch that begins

Rounds are interleaved; medians are printed with their quartiles, and the ratio of each round's pair.

    python benchmarks/map_workers.py FOLDER [--files 1500] [--workers 2] [--rounds 7] [--batch-size 64]

FOLDER is made by benchmarks/make_photos.py where there is none.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import albumentations
import cv2
import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

import headrace as hr
from headrace import _core
from headrace.tools.bench.runs import cpu_s, tree
from headrace.tools.demo_dataset import find_source, write_dataset

WINDOW_PX, CROP_PX = 288, 224
START_METHODS = ("fork", "forkserver", "spawn")

transform = albumentations.Compose(
    [
        albumentations.RandomCrop(CROP_PX, CROP_PX),
        albumentations.HorizontalFlip(),
        albumentations.ColorJitter(),
        albumentations.Normalize(),
    ]
)


def augment(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The transform, drawing from the sample's own random source."""
    transform.set_random_state(rng, random.Random(int(rng.integers(1 << 63))))
    pixels = transform(image=sample["image"].permute(1, 2, 0).numpy())["image"]
    return {"image": torch.from_numpy(pixels).permute(2, 0, 1), "label": sample["label"]}


def headrace(folder: Path, args: argparse.Namespace, **options: Any) -> hr.Loader:
    data = hr.open(folder)
    return hr.Loader(
        data.select(range(min(args.files, len(data)))),
        {"image": hr.Image(), "label": hr.Label()},
        view=hr.CenterCrop(WINDOW_PX),
        batch_size=args.batch_size,
        shuffle=True,
        map=augment,
        map_workers=args.workers,
        **options,
    )


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """The same by a Dataset, as scripts that use albumentations have it."""

    def __init__(self, files: list[str], decode: Callable[[str], np.ndarray]) -> None:
        self.files = files
        self.decode = decode

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = self.decode(self.files[index])
        top, left = ((size - WINDOW_PX) // 2 for size in pixels.shape[:2])
        pixels = transform(image=pixels[top : top + WINDOW_PX, left : left + WINDOW_PX])["image"]
        return torch.from_numpy(pixels).permute(2, 0, 1), index


def by_opencv(path: str) -> np.ndarray:
    return cv2.cvtColor(cv2.imread(path, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)


def by_pillow(path: str) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image.convert("RGB"))


def one_epoch(loader: Any) -> tuple[float, float, float]:
    """Images a second after the first batch, CPU seconds of those images each, and the seconds to the first batch."""
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    first_s = time.perf_counter() - began
    processes = tree(os.getpid())
    count, cpu, start = 0, cpu_s(processes), time.perf_counter()
    left = len(loader) - 1
    for batch in batches:
        count += len(batch["image"] if isinstance(batch, dict) else batch[0])
        left -= 1
        if left == 0:  # before the workers end, and their times with them
            elapsed, cpu = time.perf_counter() - start, cpu_s(processes) - cpu
    return count / elapsed, cpu / count, first_s


def interleaved(contenders: dict[str, Any], rounds: int) -> dict[str, list[tuple[float, float, float]]]:
    """What each gives in each round; a first round, for caches, does not count."""
    results: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, loader in contenders.items():
            figures = one_epoch(loader)
            if round_ > 0:
                results[name].append(figures)
    return results


def table(results: dict[str, list[float]], unit: str, scale: float, *, high_is_good: bool) -> None:
    own = results["Headrace"]
    for name, values in results.items():
        low, median, high = statistics.quantiles(values, n=4)
        ratio = statistics.median(a / b if high_is_good else b / a for a, b in zip(own, values, strict=True))
        print(
            f"  {name:26}{median * scale:9,.1f} {unit:9} (quartiles {low * scale:,.1f} to {high * scale:,.1f})   "
            f"Headrace is {ratio:5.2f} x"
        )


def folder_of(args: argparse.Namespace) -> Path:
    folder: Path = args.folder
    if not folder.exists():
        source = find_source(None)
        sum(1 for _ in write_dataset(list(source.load()), folder, args.files, classes=20, seed=0))
        print(f"{args.files} photographs made from {source.origin}")
    return folder


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--files", type=int, default=1500)
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--batch-size", type=int, default=64)
    ask.add_argument("--start-methods", action="store_true", help="time the first batch under each of them, too")
    args = ask.parse_args()
    folder = folder_of(args)
    files = [str(path) for path in sorted(folder.rglob("*.jp*g"))[: args.files]]
    if len(files) <= 2 * args.batch_size or args.rounds < 2:
        ask.error(f"expected 2 rounds and more than {2 * args.batch_size} JPEG files under {folder}, got {len(files)}")
    cv2.setNumThreads(1)
    print(f"{len(files):,} files, {sum(os.path.getsize(path) for path in files) / len(files) / 1000:.0f} kB each;")
    print(
        f"batches of {args.batch_size}, {args.workers} workers, {args.rounds} rounds; torch {torch.__version__}, "
        f"albumentations {albumentations.__version__};"
    )
    print(f"{os.cpu_count()} cores of {platform.machine()}, {_core.best_level()}, load {os.getloadavg()[0]:.1f}")

    options = {"batch_size": args.batch_size, "shuffle": True, "num_workers": args.workers}
    contenders: dict[str, Any] = {
        "Headrace": headrace(folder, args),
        "DataLoader, OpenCV": DataLoader(Photos(files, by_opencv), **options),
        "DataLoader, Pillow": DataLoader(Photos(files, by_pillow), **options),
    }
    runs = interleaved(contenders, args.rounds)
    print("throughput")
    table({name: [run[0] for run in each] for name, each in runs.items()}, "images/s", 1, high_is_good=True)
    print("CPU time")
    table({name: [run[1] for run in each] for name, each in runs.items()}, "us", 1e6, high_is_good=False)
    print("first batch")
    table({name: [run[2] for run in each] for name, each in runs.items()}, "ms", 1e3, high_is_good=False)
    if args.start_methods:
        for method in START_METHODS:
            runs = interleaved(
                {
                    "Headrace": headrace(folder, args, multiprocessing_context=method),
                    "DataLoader, OpenCV": DataLoader(
                        Photos(files, by_opencv), **options, multiprocessing_context=method
                    ),
                },
                2,
            )
            print(f"first batch, {method}")
            table({name: [run[2] for run in each] for name, each in runs.items()}, "ms", 1e3, high_is_good=False)


if __name__ == "__main__":
    main()
