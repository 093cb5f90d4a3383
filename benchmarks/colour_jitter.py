"""What remains of the lead when a recipe adds ColorJitter, which runs in Python?

Four loaders of the same photographs, RandomResizedCrop(224) and a flip, uint8, without and with
ColorJitter(0.4, 0.4, 0.4, 0.1) of torchvision's v2:

    bare            headrace.Loader, crop and flip alone
    threads         the same, with ColorJitter in map=
    map_workers     the same, in --workers processes
    torchvision     a DataLoader with --workers workers, decode_jpeg and torchvision v2 throughout

Rounds are interleaved, each a pass over --files images; medians of images a second, and the ratio to torchvision's of
the same round. It needs torchvision, which comes with no package of this project.

    python benchmarks/colour_jitter.py FOLDER [--files 1500] [--workers 2] [--rounds 5] [--batch-size 64]
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset
from torchvision.io import ImageReadMode, decode_jpeg, read_file
from torchvision.transforms import v2

import headrace as hr

jitter = v2.ColorJitter(0.4, 0.4, 0.4, 0.1)
whole = v2.Compose([v2.RandomResizedCrop(224, antialias=True), v2.RandomHorizontalFlip(), jitter])


def augment(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Draw from the sample's own random source."""
    torch.default_generator.manual_seed(int(rng.integers(1 << 63)))
    return sample | {"image": jitter(sample["image"])}


class Photos(Dataset[torch.Tensor]):
    """The same by torchvision alone."""

    def __init__(self, files: list[str]) -> None:
        self.files = files

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> torch.Tensor:
        return whole(decode_jpeg(read_file(self.files[index]), mode=ImageReadMode.RGB))


def images_per_s(loader: Any) -> float:
    """Time a pass without its first batch."""
    batches = iter(loader)
    next(batches)
    count, start = 0, time.perf_counter()
    for batch in batches:
        count += len(batch["image"] if isinstance(batch, dict) else batch)
    return count / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=1500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    files = [str(path) for path in sorted(args.folder.rglob("*.jpg"))[: args.files]]
    given: dict[str, Any] = {
        "fields": {"image": hr.Image()},
        "view": hr.RandomResizedCrop(224, flip=0.5),
        "batch_size": args.batch_size,
        "shuffle": True,
    }
    loaders: dict[str, Any] = {
        "bare": hr.Loader(files, **given),
        "threads": hr.Loader(files, map=augment, **given),
        "map_workers": hr.Loader(files, map=augment, map_workers=args.workers, **given),
        "torchvision": DataLoader(Photos(files), args.batch_size, shuffle=True, num_workers=args.workers),
    }
    rates: dict[str, list[float]] = {name: [] for name in loaders}
    for _ in range(args.rounds):
        for name, loader in loaders.items():
            rates[name].append(images_per_s(loader))
    print(f"{len(files)} files, {args.workers} workers, {args.rounds} rounds")
    for name, found in rates.items():
        ratio = statistics.median(own / peer for own, peer in zip(found, rates["torchvision"], strict=True))
        print(f"{name:12} {statistics.median(found):8,.0f} images/s   {ratio:5.2f} x torchvision")


if __name__ == "__main__":
    main()
