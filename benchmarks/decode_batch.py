"""What does a call of `decode_batch` cost beyond decoding, and compared to a Loader for each call?

    python benchmarks/decode_batch.py --photos FOLDER [--threads 1] [--rounds 20]

Batches of 1, 64 and 256 files' bytes in memory, as lists and as Arrow, cropped to 224 pixels. In each round every way
takes its turn: `read_images` (decode and stack, no fields), `decode_batch`, and one pass of a Loader over
`open(items)`, which copies the bytes. Medians and minima of the wall time.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

import headrace as hr

VIEW = hr.RandomResizedCrop(224, flip=0.5)


def by_loader(items: list[bytes], threads: int) -> Any:
    return next(iter(hr.Loader(hr.open(items), view=VIEW, batch_size=len(items), threads=threads, prefetch=1)))


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--photos", type=Path, required=True)
    arguments.add_argument("--threads", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=20)
    given = arguments.parse_args()
    threads = given.threads
    files = [path.read_bytes() for path in sorted(given.photos.rglob("*.jpg"))[:256]]
    print(f"{len(files)} photos, {sum(map(len, files)) / len(files) / 1e3:.0f} KB on average, {threads} threads")
    for count in (1, 64, 256):
        items = files[:count]
        ways: dict[str, Callable[[], Any]] = {
            "read_images": partial(hr.read_images, items, view=VIEW, rng=0, threads=threads),
            "decode_batch": partial(hr.decode_batch, items, view=VIEW, threads=threads),
            "decode_batch, Arrow": partial(hr.decode_batch, pa.array(items), view=VIEW, threads=threads),
            "open and Loader": partial(by_loader, items, threads),
        }
        times: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                times[name].append(1e3 * (time.perf_counter() - start))
        for name, taken in times.items():
            print(f"{count:4} items  {name:20} median {statistics.median(taken):7.2f} ms, minimum {min(taken):7.2f} ms")


if __name__ == "__main__":
    main()
