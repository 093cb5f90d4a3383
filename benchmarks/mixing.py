"""What does mixing add to a recipe's CPU time?

RandomResizedCrop(224) and a flip over photographs, with MixUp, with CutMix, and without, as bytes and as normalised
floats. CPU time of all of the process's threads for an image, over whole epochs that take turns; the median of each
round's ratio to the recipe without is printed.

    python benchmarks/mixing.py FOLDER [--files 1500] [--rounds 7] [--batch-size 256]

FOLDER is made by benchmarks/make_photos.py where there is none.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path

import headrace as hr
from headrace import _core
from headrace.tools.demo_dataset import find_source, write_dataset

CHOICES = {"without": None, "MixUp": hr.MixUp(alpha=0.2, num_classes=1000), "CutMix": hr.CutMix(num_classes=1000)}
IMAGES = {"uint8": hr.Image(), "float32": hr.Image(dtype="float32", normalize=hr.IMAGENET)}


def cpu_us(loader: hr.Loader) -> float:
    """CPU microseconds of an image, over an epoch."""
    began = time.process_time()
    count = sum(len(batch["label"]) for batch in loader)
    return (time.process_time() - began) / count * 1e6


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--files", type=int, default=1500)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--batch-size", type=int, default=256)
    args = ask.parse_args()
    if not args.folder.exists():
        source = find_source(None)
        sum(1 for _ in write_dataset(list(source.load()), args.folder, args.files, classes=20, seed=0))
    data = hr.open(args.folder)
    data = data.select(range(min(args.files, len(data))))
    print(f"{len(data):,} images, batches of {args.batch_size}, {args.rounds} rounds;")
    print(f"{os.cpu_count()} cores of {platform.machine()}, {_core.best_level()}, load {os.getloadavg()[0]:.1f}")
    given = {"view": hr.RandomResizedCrop(224, flip=0.5), "batch_size": args.batch_size, "remainder": "drop"}
    for dtype, image in IMAGES.items():
        fields = {"image": image, "label": hr.Label()}
        loaders = {name: hr.Loader(data, fields, shuffle=True, batch=each, **given) for name, each in CHOICES.items()}
        found: dict[str, list[float]] = {name: [] for name in loaders}
        for round_ in range(args.rounds + 1):  # the first is for caches
            for name, loader in loaders.items():
                took = cpu_us(loader)
                if round_ > 0:
                    found[name].append(took)
        for name, values in found.items():
            ratio = statistics.median(each / bare for each, bare in zip(values, found["without"], strict=True))
            print(f"  {dtype:8}{name:9}{statistics.median(values):8,.1f} us an image{ratio - 1:+8.1%}")


if __name__ == "__main__":
    main()
