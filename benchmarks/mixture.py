"""What does a mixture cost, beside one loader over the same samples?

    python benchmarks/mixture.py FOLDER [--files 1500] [--threads N] [--rounds 7] [--batch-size 64] [--dtype uint8]

The photographs are cut into two halves. "together" is one loader over both; "one-source" and "mixed" are mixtures of a
loader over each half, weights by size, so that all see the same samples in an epoch, cut by RandomResizedCrop(224).

    images/s    over a whole epoch, the first batch included
    CPU         of the process, an image: says more than the clock where others use the machine too
    join        CPU time of joining one batch of two halves of one, repeated on its own, and its share of what
                "together" takes for a batch

Rounds are interleaved; medians are printed, and the medians of the ratios to "together" within a round.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.loader.batch_memory import PooledMemory
from headrace.loader.mixtures.joining import join
from headrace.tools.bench.comparison import environment
from headrace.tools.demo_dataset import find_source, write_dataset

BASE = "together"
JOINS = 100


@dataclass(frozen=True)
class Epoch:
    """Of one epoch."""

    images: int
    wall_s: float
    cpu_s: float

    @property
    def rate(self) -> float:
        return self.images / self.wall_s

    @property
    def cpu_us(self) -> float:
        """Microseconds of CPU time an image."""
        return self.cpu_s / self.images * 1e6


def loader(data: hr.Dataset, args: argparse.Namespace) -> hr.Loader:
    return hr.Loader(
        data,
        {"image": hr.Image(dtype=args.dtype), "label": hr.Label()},
        view=hr.RandomResizedCrop(224, flip=0.5),
        batch_size=args.batch_size,
        threads=args.threads,
        shuffle=True,
    )


def contenders(data: hr.Dataset, args: argparse.Namespace) -> dict[str, Any]:
    """Each is iterated over again and again, as in training, so that its memory is there from the second epoch on."""
    half = len(data) // 2
    halves = {"first": data.select(slice(0, half)), "second": data.select(slice(half, 2 * half))}

    def mixed(batches: Any) -> Any:
        return hr.mix({name: loader(part, args) for name, part in halves.items()}, batches=batches)

    return {
        BASE: loader(data.select(slice(0, 2 * half)), args),
        "one-source": mixed("one-source"),
        "mixed": mixed("mixed"),
    }


def epoch(batches: Any) -> Epoch:
    wall, cpu = time.perf_counter(), time.process_time()
    images = sum(len(batch["label"]) for batch in batches)
    return Epoch(images, time.perf_counter() - wall, time.process_time() - cpu)


def join_s(data: hr.Dataset, args: argparse.Namespace) -> float:
    """CPU seconds of joining a batch, into memory that is used again, as in a pass."""
    iterator = iter(loader(data, args))
    batch = next(iterator)
    iterator.close()
    count = len(batch["label"])
    rows = [np.arange(first, count, 2, dtype=np.int64) for first in (0, 1)]
    parts = [(name, at, {k: v[: len(at)] for k, v in batch.items()}) for name, at in zip("ab", rows, strict=True)]
    memory, times = PooledMemory(1, 1), []
    for _ in range(JOINS):
        since = time.thread_time()
        join(parts, count, memory)
        times.append(time.thread_time() - since)
    return statistics.median(times)


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--files", type=int, default=1500)
    ask.add_argument("--threads", type=int)
    ask.add_argument("--rounds", type=int, default=7)
    ask.add_argument("--batch-size", type=int, default=64)
    ask.add_argument("--dtype", default="uint8")
    args = ask.parse_args()
    if not args.folder.exists():
        sum(1 for _ in write_dataset(list(find_source().load()), args.folder, args.files, classes=20, seed=0))
    data = hr.open(args.folder)
    data = data.select(range(min(args.files, len(data))))
    compared = contenders(data, args)
    for batches in compared.values():  # reads what is not in the page cache
        epoch(batches)
    rounds = [{name: epoch(batches) for name, batches in compared.items()} for _ in range(args.rounds)]
    here = environment()
    print(f"{here.cpu}, {here.cores} cores, {here.date}")
    print(f"{len(data):,} photographs, batches of {args.batch_size} {args.dtype}, medians of {args.rounds} rounds\n")
    print(f"{'':<14}{'images/s':>10}{'ratio':>8}{'CPU an image':>16}{'ratio':>8}")
    for name in compared:
        rate = statistics.median(found[name].rate for found in rounds)
        cpu = statistics.median(found[name].cpu_us for found in rounds)
        of_rate = statistics.median(found[name].rate / found[BASE].rate for found in rounds)
        of_cpu = statistics.median(found[name].cpu_us / found[BASE].cpu_us for found in rounds)
        print(f"{name:<14}{rate:>10,.0f}{of_rate:>8.3f}{cpu:>13,.0f} us{of_cpu:>8.3f}")
    joined = join_s(data, args)
    batch_s = statistics.median(found[BASE].cpu_us for found in rounds) * args.batch_size / 1e6
    print(f"\njoin: {1e3 * joined:.2f} ms of CPU time a batch, {joined / batch_s:.1%} of what {BASE!r} takes for one")


if __name__ == "__main__":
    main()
