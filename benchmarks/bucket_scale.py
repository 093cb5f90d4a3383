"""What does a plan with buckets cost for many samples: until its first batch, per batch, and in memory?

    python benchmarks/bucket_scale.py [--samples 10000000 100000000] [--buckets 16] [--budget]

Each length in a fresh process: sizes of that many images lie in a mapped file, as columns `width` and `height` of a
dataset do. Timed is what Loader does with `buckets=hr.Buckets("aspect", count=…)` and a RandomScale of five scales
(with `--budget`, and a Budget of pixels) until the first batch of 256 is planned, then the mean of 200 further batches.
Memory is that of the process, in MB: the greatest of its own pages (`private`), sampled each 10 ms, what of it there
was before, and the greatest until the first batch with pages of mapped files (`peak`). Batches at random touch more and
more of those; the system takes them back where memory is wanted.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RUN = """
import json, sys, threading, time
import numpy as np
import headrace as hr
from headrace.data.columns import FileColumn, ValueColumn
from headrace.data.location import ColumnFiles as Files
from headrace.data.storage.strings import StringColumn, Strings
from headrace.data.table import SampleTable as Table
from headrace.plan import ViewedImages as Images, Order, plan_of
from headrace.views import compile_view

folder, length, buckets, budget = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True"

class Numbered(Strings):
    __slots__ = ()
    def __len__(self): return length
    def take(self, indices): return StringColumn.from_list(str(index) for index in indices)
    def pieces(self): yield self.take(range(length))

def memory():
    lines = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)
    return [int(lines[name].split()[0]) / 1e3 for name in ("RssAnon", "VmHWM")]

def watch():
    while not done.wait(0.01):
        seen.append(memory()[0])

def column(name):
    return ValueColumn(np.memmap(f"{folder}/{name}", np.int32, "r", shape=(length,)))

keys = Numbered()
columns = {"image": FileColumn(Files("/", keys, archives=False)), "width": column("width"), "height": column("height")}
dataset = hr.Dataset(Table("made up", keys, columns, {}))
done, seen = threading.Event(), [memory()[0]]
before = memory()
watcher = threading.Thread(target=watch)
watcher.start()
begin = time.perf_counter()
plan = plan_of(
    dataset,
    Order(world_size=8, rank=3, shuffle=True, seed=1, remainder="short"),
    batch_size=hr.Budget(pixels=32 * 600 * 1000) if budget else 32,
    buckets=hr.Buckets("aspect", count=buckets),
    program=compile_view(hr.RandomScale((300, 375, 450, 525, 600), long_max=1000)),
    images=Images(column="image", exif=False, threads=2, limits=None),
)
plan.batch(0, 0)
first = time.perf_counter() - begin
peak = memory()[1]
begin = time.perf_counter()
for step in range(1, 201):
    plan.batch(1, step)
each = (time.perf_counter() - begin) / 200
done.set()
watcher.join()
print(json.dumps({
    "samples": length, "first_batch_s": round(first, 2), "batch_ms": round(1e3 * each, 2), "steps": plan.steps,
    "private_before_mb": round(before[0]), "private_mb": round(max(seen)), "peak_mb": round(peak),
}))
"""


def write_sizes(folder: Path, length: int) -> None:
    """Sizes like those of photographs: mostly 4:3 and 3:2, a third upright, some cut as people like."""
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--samples", type=int, nargs="+", default=[10_000_000, 100_000_000])
    parser.add_argument("--buckets", type=int, default=16)
    parser.add_argument("--budget", action="store_true")
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    for length in given.samples:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            write_sizes(Path(folder), length)
            command = [sys.executable, "-c", RUN, folder, str(length), str(given.buckets), str(given.budget)]
            print(
                json.dumps(json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)), flush=True
            )


if __name__ == "__main__":
    main()
