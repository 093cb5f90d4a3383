"""What does a Dataset gain under ThreadDataLoader, beside DataLoader with as many processes?

One Dataset, whose samples are photographs through `ImageReader` (RandomResizedCrop(224), flip, uint8) and whose batches
torch's own collate makes, under each loader. Two questions:

    throughput    images a second over an epoch without its first batch, by workers that are warm; and the CPU time of
                  an image in all processes, which says more where others use the machine too
    first batch   from iter(loader) to the first batch, with workers that start; the first epoch of a fresh loader

and the Python that ThreadDataLoader itself adds to a sample, with a Dataset that gives what it has. Rounds are
interleaved, and medians are printed with their quartiles.

    python benchmarks/thread_loader.py FOLDER [--files 2000] [--workers 2] [--rounds 7] [--batch-size 64]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader, Dataset

from headrace import RandomResizedCrop, _core
from headrace.dropins.image_reader import ImageReader
from headrace.dropins.random_sources import sample_random
from headrace.dropins.thread_loader.thread_dataloader import ThreadDataLoader
from headrace.tools.bench.runs import cpu_s, tree

VIEW = RandomResizedCrop(224, flip=0.5)
T = TypeVar("T")
START_METHODS = ("fork", "forkserver", "spawn")


class Photos(Dataset[tuple[torch.Tensor, int]]):
    """Files, decoded and cut, and a number each."""

    def __init__(self, files: list[str]) -> None:
        self.files = files
        self.read = ImageReader(view=VIEW)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.read(self.files[index], rng=sample_random().numpy), index


class Numbers(Dataset[int]):
    """Samples that cost nothing."""

    def __len__(self) -> int:
        return 64 * 300

    def __getitem__(self, index: int) -> int:
        return index


def one_epoch(loader: Any) -> tuple[float, float]:
    """Images a second from the first batch's arrival on, and CPU seconds an image, workers included."""
    batches = iter(loader)
    next(batches)
    processes = tree(os.getpid())
    count, cpu, start = 0, cpu_s(processes), time.perf_counter()
    for _, numbers in batches:
        count += len(numbers)
    return count / (time.perf_counter() - start), (cpu_s(processes) - cpu) / count


def first_batch_s(make: Callable[[], Any]) -> float:
    loader = make()
    start = time.perf_counter()
    batches = iter(loader)
    next(batches)
    elapsed = time.perf_counter() - start
    del batches
    return elapsed


def overhead_us(workers: int) -> float:
    """Microseconds of a sample's way through the loader, all threads and the consumer together."""
    loader = ThreadDataLoader(Numbers(), 64, num_workers=workers, collate_fn=list, persistent_workers=workers > 0)
    for _ in loader:  # threads, and code, that are warm
        pass
    start = time.process_time()
    for _ in loader:
        pass
    return (time.process_time() - start) / len(loader.dataset) * 1e6


def interleaved(contenders: dict[str, Callable[[], T]], rounds: int) -> dict[str, list[T]]:
    """What each gives in each round; a first round, for caches and workers, does not count."""
    results: dict[str, list[T]] = {name: [] for name in contenders}
    for round_ in range(rounds + 1):
        for name, measure in contenders.items():
            value = measure()
            if round_ > 0:
                results[name].append(value)
    return results


def table(results: dict[str, list[float]], unit: str, scale: float, *, high_is_good: bool) -> None:
    own = statistics.median(results["ThreadDataLoader"])
    for name, values in results.items():
        low, median, high = statistics.quantiles(values, n=4)
        ratio = own / median if high_is_good else median / own
        print(
            f"  {name:24}{median * scale:9,.1f} {unit:9} (quartiles {low * scale:,.1f} to {high * scale:,.1f})   "
            f"ThreadDataLoader is {ratio:5.2f} x"
        )


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--files", type=int, default=2000)
    ask.add_argument("--workers", type=int, default=2)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--batch-size", type=int, default=64)
    args = ask.parse_args()
    files = [str(path) for path in sorted(args.folder.rglob("*.jp*g"))[: args.files]]
    if len(files) <= args.batch_size or args.rounds < 2:
        ask.error(f"expected 2 rounds and more than {args.batch_size} JPEG files under {args.folder}, got {len(files)}")
    photos = Photos(files)
    options = {"batch_size": args.batch_size, "shuffle": True, "num_workers": args.workers}

    print(f"{len(files):,} files, {sum(os.path.getsize(path) for path in files) / len(files) / 1000:.0f} kB each;")
    print(f"batches of {args.batch_size}, {args.workers} workers, {args.rounds} rounds; torch {torch.__version__};")
    print(f"{os.cpu_count()} cores of {platform.machine()}, {_core.best_level()}, load {os.getloadavg()[0]:.1f}")

    loaders = {
        "ThreadDataLoader": ThreadDataLoader(photos, **options),
        "DataLoader": DataLoader(photos, **options, persistent_workers=True),
    }
    epochs = interleaved({name: partial(one_epoch, loader) for name, loader in loaders.items()}, args.rounds)
    print("throughput")
    table({name: [run[0] for run in runs] for name, runs in epochs.items()}, "images/s", 1, high_is_good=True)
    print("CPU time")
    table({name: [run[1] for run in runs] for name, runs in epochs.items()}, "us", 1e6, high_is_good=False)
    del loaders

    starts = {"ThreadDataLoader": partial(first_batch_s, partial(ThreadDataLoader, photos, **options))}
    for method in START_METHODS:
        make = partial(DataLoader, photos, **options, multiprocessing_context=multiprocessing.get_context(method))
        starts[f"DataLoader, {method}"] = partial(first_batch_s, make)
    print("first batch")
    table(interleaved(starts, args.rounds), "ms", 1000, high_is_good=False)

    print("Python of the loader itself, a sample")
    for workers in (0, 1, args.workers):
        values = [overhead_us(workers) for _ in range(args.rounds)]
        print(f"  num_workers={workers}: {statistics.median(values):.1f} us")


if __name__ == "__main__":
    main()
