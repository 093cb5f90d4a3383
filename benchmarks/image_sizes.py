"""How long does it take to learn the sizes of all images of a folder, and to learn them again?

    python benchmarks/image_sizes.py FOLDER [--threads 2] [--rounds 5]

FOLDER holds images, such as `benchmarks/make_photos.py OUT --count 5000` makes. "whole files" reads all of each, as who
has no use for headers alone must: Python's own read, in as many threads. "Pillow" opens each in this one thread. "kept"
is the second call of `image_sizes`, in a fresh process's first use of the file; the others keep nothing. The page cache
is warm; medians.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

import headrace as hr
from headrace import Limits
from headrace.data.native_reading import probe_sizes
from headrace.data.sizes import image_sizes


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("folder", type=Path)
    ask.add_argument("--threads", type=int, default=2)
    ask.add_argument("--rounds", type=int, default=5)
    args = ask.parse_args()
    dataset = hr.open(args.folder)
    paths = [args.folder / key for key in dataset.keys]

    def probe() -> object:
        return probe_sizes(dataset, "image", exif=False, threads=args.threads, limits=Limits())

    def whole_files() -> object:
        with ThreadPoolExecutor(args.threads) as pool:
            return sum(pool.map(lambda path: len(path.read_bytes()), paths))

    def by_pillow() -> object:
        return [Image.open(path).size for path in paths]

    with tempfile.TemporaryDirectory() as cache:

        def kept() -> object:
            return image_sizes(dataset, "image", threads=args.threads, cache=cache)

        kept()
        print(f"{len(dataset):,} images, {args.threads} threads")
        for name, work in (("headers", probe), ("whole files", whole_files), ("Pillow", by_pillow), ("kept", kept)):
            spent_s = _median_s(work, args.rounds)
            print(f"{name:12} {len(dataset) / spent_s:12,.0f} images/s {1e3 * spent_s:10.2f} ms")


def _median_s(work: Callable[[], object], rounds: int) -> float:
    spent = []
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        work()
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent[1:])


if __name__ == "__main__":
    main()
