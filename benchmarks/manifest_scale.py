"""What does a manifest of ten million rows cost: to index, to open, until the first batch, and in memory?

    python benchmarks/manifest_scale.py [--rows 10000000] [--folder DIR] [--format parquet|csv|jsonl] [--rounds 3]

Writes a manifest of that many rows (a path of 40 bytes, a class by name, a number) into DIR (default: a temporary
folder), and photographs only where the plan looks first. `first indexing` is one opening in a fresh process without
anything kept; all else is a median of fresh processes that import torch and headrace first. Memory is that of the whole
process, in MB, and `grown` what of it has come since those imports:

    opened          after `headrace.open`
    ten batches     after ten batches of 64 random crops
    200,000 texts   after a pass at random over as many rows' paths and classes, of which a mapped file would keep all
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from PIL import Image

import headrace as hr
from headrace.plan import UniformPlan
from headrace.tools.bench.comparison import environment
from headrace.tools.demo_dataset import natural_image

CLASSES = 1000
PIECE = 1 << 20
BATCH, BATCHES = 64, 10
AHEAD = 16  # batches that may be under way beside those taken
INDEXING = """
import json, resource, sys, time
import headrace as hr
begin = time.perf_counter()
hr.open(sys.argv[1])
took = time.perf_counter() - begin
peak = dict(line.split(":") for line in open("/proc/self/status") if ":" in line)["VmHWM"]
print(json.dumps({"s": took, "peak_mb": int(peak.split()[0]) / 1e3}))
"""
LOADING = """
import json, sys, time
import torch
import headrace as hr

def memory():
    found = {}
    for line in [*open("/proc/self/status"), *open("/proc/self/smaps_rollup")]:
        name, _, value = line.partition(":")
        if name in ("VmRSS", "Pss", "RssAnon"):
            found[name] = int(value.split()[0]) / 1e3
    return found

path, batch, batches = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
stages = {"imports": memory()}
begin = time.perf_counter()
dataset = hr.open(path)
opened = time.perf_counter()
stages["opened"] = memory()
ready = time.perf_counter()
loader = hr.Loader(
    dataset, {"image": hr.Image(), "label": hr.Label(source="name")}, view=hr.RandomResizedCrop(224), batch_size=batch,
    shuffle=True, on_error="raise", threads=2,
)
taken = iter(loader)
next(taken)
first = time.perf_counter()
for _ in range(batches - 1):
    next(taken)
stages["ten batches"] = memory()
taken.close()
texts = hr.Loader(
    dataset, {"path": hr.Raw(source="image"), "label": hr.Label(source="name")}, batch_size=512, shuffle=True, seed=1,
)
for step, _ in enumerate(texts):
    if step == 390:
        break
stages["200,000 texts"] = memory()
texts.set_epoch(1)
again = time.perf_counter()
next(iter(texts))
next_epoch = time.perf_counter()
texts.state_dict()
state = time.perf_counter()
print(json.dumps({
    "opened_s": opened - begin, "first_batch_s": first - ready, "next_epoch_s": next_epoch - again,
    "state_s": state - next_epoch, "memory": stages,
}))
"""


def pieces(rows: int) -> Iterator[pa.Table]:
    """The rows, some at a time, without a Python object each."""
    for first in range(0, rows, PIECE):
        number = np.arange(first, min(first + PIECE, rows))
        name = pc.binary_join_element_wise("n", pc.utf8_lpad(pa.array(number % CLASSES).cast(pa.string()), 8, "0"), "")
        file = pc.utf8_lpad(pa.array(number).cast(pa.string()), 10, "0")
        path = pc.binary_join_element_wise("train", name, pc.binary_join_element_wise(name, file, "_"), "/")
        yield pa.table({"image": pc.binary_join_element_wise(path, "", ".jpg"), "name": name, "number": number})


def write_parquet(path: Path, rows: int) -> None:
    tables = pieces(rows)
    first = next(tables)
    with pa.parquet.ParquetWriter(path, first.schema) as writer:
        for table in (first, *tables):
            writer.write_table(table)


def write_csv(path: Path, rows: int) -> None:
    tables = pieces(rows)
    first = next(tables)
    with pa.csv.CSVWriter(path, first.schema) as writer:
        for table in (first, *tables):
            writer.write_table(table)


def write_json_lines(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for table in pieces(rows):
            columns = [column.to_pylist() for column in table.columns]
            file.writelines(
                f'{{"image": "{image}", "name": "{name}", "number": {number}}}\n'
                for image, name, number in zip(*columns, strict=True)
            )


WRITERS: dict[str, Callable[[Path, int], None]] = {
    "parquet": write_parquet, "csv": write_csv, "jsonl": write_json_lines,
}  # fmt: skip


def run(script: str, *args: object) -> Any:
    """What a fresh process prints."""
    done = subprocess.run(
        [sys.executable, "-c", script, *map(str, args)], check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout)


def write_first_drawn(manifest: Path) -> None:
    """Photographs where the loader looks first: where it checks that files are there, and what it draws."""
    dataset = hr.open(manifest)
    plan = UniformPlan(length=len(dataset), batch_size=BATCH, shuffle=True)
    drawn = [plan.batch(0, step).samples for step in range(min(BATCHES + AHEAD, plan.steps))]
    photograph = io.BytesIO()
    Image.fromarray(natural_image(500, 375, seed=0)).save(photograph, "JPEG", quality=90)
    for key in dataset.select(np.concatenate([[0], *drawn])).keys:
        path = manifest.parent / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(photograph.getvalue())


def show_memory(results: list[Any]) -> None:
    print(f"{'':26}{'RSS':>8} {'grown':>8} {'PSS':>8} {'anonymous':>10}")
    for stage in results[0]["memory"]:
        mb = {
            name: statistics.median(r["memory"][stage][name] for r in results) for name in ("VmRSS", "Pss", "RssAnon")
        }
        grown = statistics.median(r["memory"][stage]["VmRSS"] - r["memory"]["imports"]["VmRSS"] for r in results)
        print(f"{stage:26}{mb['VmRSS']:8.0f} {grown:8.0f} {mb['Pss']:8.0f} {mb['RssAnon']:10.0f}")


def show(manifest: Path, rows: int, rounds: int) -> None:
    indexing = run(INDEXING, manifest)
    kept = os.path.getsize(f"{manifest}.headrace")
    print(f"first indexing            {indexing['s']:8.2f} s, at most {indexing['peak_mb']:.0f} MB of memory")
    print(f"kept                      {kept / 1e6:8.0f} MB, {kept / rows:.1f} bytes a row")
    write_first_drawn(manifest)
    results = [run(LOADING, manifest, BATCH, BATCHES) for _ in range(rounds)]
    for name, text in (
        ("opened_s", "opened"),
        ("first_batch_s", "first batch"),
        ("next_epoch_s", "next epoch's first batch"),
        ("state_s", "state"),
    ):
        print(f"{text:26}{1e3 * statistics.median(result[name] for result in results):8.1f} ms")
    show_memory(results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--format", choices=WRITERS, default="parquet")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(environment())
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        manifest = Path(folder) / f"list.{options.format}"
        WRITERS[options.format](manifest, options.rows)
        print(f"{options.rows:,} rows in {options.format}, {manifest.stat().st_size / 1e6:,.0f} MB")
        show(manifest, options.rows, options.rounds)


if __name__ == "__main__":
    main()
