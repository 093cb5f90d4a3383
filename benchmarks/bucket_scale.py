"""What does a plan with buckets cost for many samples: until its first batch, per batch, and in memory?

    python benchmarks/bucket_scale.py [--samples 10000000 100000000] [--buckets 16] [--budget]

Each length in a fresh process: sizes of that many images lie in a mapped file, as columns `width` and `height` of a
dataset do. Timed is what Loader does with `buckets=hr.Buckets("aspect", count=…)` and a RandomScale of five scales
(with `--budget`, and a Budget of pixels) until the first batch of 256 is planned, then the mean of 200 further batches.
Memory is that of the process, in MB: the greatest of its own pages (`private`), sampled each 10 ms, what of it there
was before, and the greatest until the first batch with pages of mapped files (`peak`). Batches at random touch more and
more of those; the system takes them back where memory is wanted.
"""

import json
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from bucket_ranks import LONG_MAX, SHORT_SIDES, bucketed_plan, sized_dataset
from harness import HIDDEN, arguments, memory_mb, process_json

import headrace as hr
from headrace.data.storage.strings import StringColumn, Strings
from headrace.views import compile_view

SIDES = ("width", "height")


class Numbered(Strings):
    """Keys that are the samples' numbers."""

    def __init__(self, length):
        self._length = length

    def __len__(self):
        return self._length

    def take(self, indices):
        return StringColumn.from_list(map(str, indices))

    def pieces(self):
        yield self.take(range(self._length))


def measure(folder, length, buckets, budget):
    dataset = sized_dataset(
        Numbered(length), *(np.memmap(folder / side, np.int32, "r", shape=length) for side in SIDES)
    )
    done, seen = threading.Event(), memory_mb("RssAnon")

    def watch():
        while not done.wait(0.01):
            seen.extend(memory_mb("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    batch_size = hr.Budget(pixels=32 * SHORT_SIDES[-1] * LONG_MAX) if budget else 32
    program = compile_view(hr.RandomScale(SHORT_SIDES, long_max=LONG_MAX))
    plan = bucketed_plan(dataset, 3, 8, batch_size, buckets, program)
    plan.batch(0, 0)
    first_s, (peak,), begin = time.perf_counter() - begin, memory_mb("VmHWM"), time.perf_counter()
    for step in range(1, 201):
        plan.batch(1, step)
    batch_ms = (time.perf_counter() - begin) / 200 * 1e3
    done.set()
    watcher.join()
    return {
        "samples": length, "first_batch_s": round(first_s, 2), "batch_ms": round(batch_ms, 2), "steps": plan.steps,
        "private_before_mb": round(seen[0]), "private_mb": round(max(seen)), "peak_mb": round(peak),
    }  # fmt: skip


def write_sizes(folder, length):
    """Write sizes like those of photographs: mostly 4:3 and 3:2, a third upright, some cut as people like."""
    rng = np.random.default_rng(0)
    with (folder / "width").open("wb") as widths, (folder / "height").open("wb") as heights:
        for first in range(0, length, 1 << 20):
            count = min(1 << 20, length - first)
            short = rng.integers(300, 2000, count)
            ratio = np.where(rng.random(count) < 0.7, rng.choice([4 / 3, 1.5], count), rng.uniform(1, 2.2, count))
            sides = np.stack([short, short * ratio]).astype(np.int32)
            upright = rng.random(count) < 0.3
            heights.write(np.where(upright, sides[1], sides[0]).tobytes())
            widths.write(np.where(upright, sides[0], sides[1]).tobytes())


def main():
    hidden = {"type": Path, **HIDDEN}
    args = arguments(
        __doc__, samples=[10_000_000, 100_000_000], buckets=16, budget=False, folder=Path, sizes=hidden
    )  # fmt: skip
    if args.sizes is not None:
        print(json.dumps(measure(args.sizes, args.samples[0], args.buckets, args.budget)))
        return
    for length in args.samples:
        with tempfile.TemporaryDirectory(dir=args.folder) as folder:
            write_sizes(Path(folder), length)
            budget = ["--budget"] if args.budget else []
            options = ["--sizes", folder, "--samples", length, "--buckets", args.buckets, *budget]
            print(json.dumps(process_json(__file__, *options)), flush=True)


if __name__ == "__main__":
    main()
