"""What does a manifest of ten million rows cost: to index, to open, until the first batch, and in memory?

    python benchmarks/manifest_scale.py [--rows 10000000] [--folder DIR] [--rounds 3]

Writes a parquet manifest of that many rows (a path of 40 bytes, a class by name, a number) into DIR (default: a
temporary folder), and photographs only where the plan looks first. `first indexing` is one opening in a fresh process
without anything cached; all else is a median of fresh processes that import torch and headrace first. Memory is that of
the whole process, in MB, and `grown` what of it has come since those imports:

    opened          after `headrace.open`
    ten batches     after ten batches of 64 random crops
    200,000 texts   after a pass at random over as many rows' paths and classes, of which a mapped file would keep all
"""

import os
import statistics
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet
from harness import arguments, encoded, machine, process_json
from PIL import Image

import headrace as hr
from headrace.plan import UniformPlan
from headrace.tools.demo_dataset import natural_image

BATCH, BATCHES, AHEAD = 64, 10, 16  # AHEAD: batches that may be under way beside those taken
INDEXING = """
import json, sys, time
import headrace as hr
from harness import memory_mb
begin = time.perf_counter()
hr.open(sys.argv[1])
print(json.dumps([time.perf_counter() - begin, *memory_mb("VmHWM")]))
"""
LOADING = """
import json, sys, time
from itertools import islice
import torch
import headrace as hr
from harness import exhaust, memory_mb, seconds

def memory():
    return memory_mb("VmRSS", "Pss", "RssAnon")

path, batch, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
stages = {"imports": memory()}
begin = time.perf_counter()
dataset = hr.open(path)
times = {"opened": time.perf_counter() - begin}
stages["opened"] = memory()
begin = time.perf_counter()
fields, settings = {"image": hr.Image(), "label": hr.Label(source="name")}, {"on_error": "raise", "threads": 2}
loader = hr.Loader(dataset, fields, view=hr.RandomResizedCrop(224), batch_size=batch, shuffle=True, **settings)
taken = iter(loader)
next(taken)
times["first batch"] = time.perf_counter() - begin
exhaust(islice(taken, batches - 1))
stages["ten batches"] = memory()
taken.close()
fields = {"path": hr.Raw(source="image"), "label": hr.Label(source="name")}
texts = hr.Loader(dataset, fields, batch_size=512, shuffle=True, seed=1)
exhaust(islice(texts, 391))
stages["200,000 texts"] = memory()
texts.set_epoch(1)
times["next epoch's first batch"] = seconds(lambda: next(iter(texts)))
times["state"] = seconds(texts.state_dict)
print(json.dumps([times, stages]))
"""


def write_manifest(path, rows):
    """Write the rows, some at a time, without a Python object each."""

    def table(first):
        number = np.arange(first, min(first + (1 << 20), rows))
        name = pc.binary_join_element_wise("n", pc.utf8_lpad(pa.array(number % 1000).cast(pa.string()), 8, "0"), "")
        file = pc.utf8_lpad(pa.array(number).cast(pa.string()), 10, "0")
        image = pc.binary_join_element_wise("train", name, pc.binary_join_element_wise(name, file, "_"), "/")
        return pa.table({"image": pc.binary_join_element_wise(image, "", ".jpg"), "name": name, "number": number})

    with pa.parquet.ParquetWriter(path, table(0).schema) as writer:
        for first in range(0, rows, 1 << 20):
            writer.write_table(table(first))


def write_first_drawn(manifest):
    """Write photographs where the loader looks first: where it checks that files are there, and what it draws."""
    dataset = hr.open(manifest)
    plan = UniformPlan(length=len(dataset), batch_size=BATCH, shuffle=True)
    drawn = [plan.batch(0, step).samples for step in range(min(BATCHES + AHEAD, plan.steps))]
    photograph = encoded(Image.fromarray(natural_image(500, 375, seed=0)), quality=90)
    for key in dataset.select(np.concatenate([[0], *drawn])).keys:
        path = manifest.parent / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photograph)


def main():
    args = arguments(__doc__, rows=10_000_000, folder=Path, rounds=3)
    print(machine())
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        manifest = Path(folder, "list.parquet")
        write_manifest(manifest, args.rows)
        print(f"{args.rows:,} rows in parquet, {manifest.stat().st_size / 1e6:,.0f} MB")
        took, peak_mb = process_json("-c", INDEXING, manifest)
        size = os.path.getsize(f"{manifest}.headrace")
        print(f"first indexing            {took:8.2f} s, at most {peak_mb:.0f} MB of memory")
        print(f"kept                      {size / 1e6:8.0f} MB, {size / args.rows:.1f} bytes a row")
        write_first_drawn(manifest)
        results = [process_json("-c", LOADING, manifest, BATCH, BATCHES) for _ in range(args.rounds)]
    for name in results[0][0]:
        print(f"{name:26}{1e3 * statistics.median(times[name] for times, _ in results):8.1f} ms")
    print(f"{'':26}{'RSS':>8} {'grown':>8} {'PSS':>8} {'anonymous':>10}")
    for stage in results[0][1]:
        rss, pss, anonymous = map(statistics.median, zip(*(stages[stage] for _, stages in results), strict=True))
        grown = statistics.median(stages[stage][0] - stages["imports"][0] for _, stages in results)
        print(f"{stage:26}{rss:8.0f} {grown:8.0f} {pss:8.0f} {anonymous:10.0f}")


if __name__ == "__main__":
    main()
