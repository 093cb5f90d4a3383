"""What does a run of up to 10⁹ samples on thousands of GPUs ask of a store, a node and a rank?

    python benchmarks/scale.py [--samples 1000000000] [--bytes 50000] [--ranks 64 4096] [--rate 1000]

No store is read. The plan, the location of samples and the requests are those of a Loader; the samples are made
up: tars of 1 GB with members of one size. The link answers at once, and is planned for as one of 20 ms and 1 GB/s. Each
row is one rank in the middle of an epoch, as after a resume; its figures are scaled to all ranks and the whole epoch.

Requests have the default price of `headrace plan`.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tarfile
import tempfile
import time
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.data import ByteColumn, ColumnFiles, Dataset, Location, ObjectPath, StringColumn, Strings
from headrace.data.table import SampleTable
from headrace.fetch import ReadForecast, forecast
from headrace.plan import UniformPlan
from headrace.stores import LinkModel, ObjectStore, parse_address
from headrace.tools.plan_command import Prices

SHARD_BYTES = 1_000_000_000
BATCH = 256
STEPS = 128
LINK = LinkModel(latency_s=0.02, bandwidth=1e9, streams=64)
INDEXED = 20_000
"""Members of the tar by which the size of an index is measured."""


class Numbers(Strings):
    """Keys that are the samples' numbers."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def take(self, indices: Any) -> StringColumn:
        return StringColumn.from_list([str(index) for index in np.asarray(indices).tolist()])


@dataclass(frozen=True)
class Shards:
    """Objects by number, without one in memory for each."""

    store: ObjectStore

    def object(self, _: int, name: bytes) -> ObjectPath:
        return ObjectPath(self.store, name.decode())


@dataclass(frozen=True, eq=False)
class MadeColumn(ByteColumn):
    """Members of one size in tars of one size."""

    files: ColumnFiles
    member_bytes: int
    per_shard: int

    def locate(self, ids: Any) -> Location:
        shard, row = np.divmod(ids, self.per_shard)
        stored = 512 + -(-self.member_bytes // 512) * 512
        return Location(shard, row * stored + 512, np.full(len(ids), self.member_bytes, np.int64), None)

    def parts(self) -> Any:
        yield None, "<i8"


def made_dataset(samples: int, member_bytes: int) -> Dataset:
    per_shard = SHARD_BYTES // (512 + -(-member_bytes // 512) * 512)
    names = StringColumn.from_list([f"train-{number:06d}.tar" for number in range(-(-samples // per_shard))])
    objects = Shards(ObjectStore(parse_address("s3://bucket/train-000000.tar").store))
    files = ColumnFiles("s3://bucket", names, archives=True, objects=objects)
    column = MadeColumn(files, member_bytes, per_shard)
    return Dataset(SampleTable("made shards", Numbers(samples), {"image": column}, {}, known_digest="made"))


@dataclass(frozen=True)
class Row:
    """One rank of a run."""

    ranks: int
    order: str
    plan_us: float
    """Time to plan a step, without its requests."""
    fetch_us: float
    """Time to locate a sample, and to plan its requests."""
    first_s: float
    """Time until the requests of the first step after a resume are planned."""
    planned_bytes: int
    """Python memory of the plan and of the requests in flight, without the samples' bytes."""
    reads: ReadForecast


def measure(dataset: Dataset, ranks: int, order: str) -> Row:
    """Follow the middle of an epoch for times, and again for memory, whose tracing slows everything down."""
    shape = hr.Windowed(lanes=max(8, ranks)).resolve(dataset) if order == "windowed" else None

    def plan_of(seed: int) -> UniformPlan:
        return UniformPlan(
            length=len(dataset),
            batch_size=BATCH,
            rank=ranks // 2,
            world_size=ranks,
            seed=seed,
            shuffle=True,
            window=shape,
        )

    start = time.perf_counter()
    forecast(dataset, ["image"], plan_of(0), LINK, steps=1)
    first_s = time.perf_counter() - start
    plan, steps_s = plan_of(1), []
    for step in range(plan.steps // 2, min(plan.steps, plan.steps // 2 + STEPS)):
        start = time.perf_counter()
        plan.batch(1, step)
        steps_s.append(time.perf_counter() - start)
    start = time.perf_counter()
    reads = forecast(dataset, ["image"], plan_of(2), LINK, steps=STEPS)
    fetch_s = time.perf_counter() - start
    tracemalloc.start()
    forecast(dataset, ["image"], plan_of(3), LINK, steps=STEPS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Row(ranks, order, statistics.median(steps_s) * 1e6, fetch_s / reads.samples * 1e6, first_s, peak, reads)


def index_bytes() -> float:
    """Return the bytes of an index for one member of a tar."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.tar"
        with tarfile.open(path, "w") as tar:
            for number in range(INDEXED):
                entry = tarfile.TarInfo(f"{number:09d}.jpg")
                entry.size = 512
                tar.addfile(entry, io.BytesIO(bytes(512)))
        hr.open(str(path))
        return os.path.getsize(f"{path}.headrace") / INDEXED


def row_of(row: Row, samples: int, rate: float) -> str:
    """Return a line of the table: figures of a rank, then of the whole run."""
    total, requests, per_s = samples * row.reads.read_bytes, samples * row.reads.requests, row.ranks * rate
    cells = [
        f"{samples:,}", f"{row.ranks:,}", row.order,
        f"{row.plan_us:.0f} µs", f"{row.fetch_us:.0f} µs", f"{row.first_s:.2f} s",
        f"{row.planned_bytes / 1e6:.0f} MB",
        f"{row.reads.requests:.3f}", f"{total / 1e12:,.2f} TB", f"${requests * Prices().request:,.0f}",
        f"{per_s * row.reads.requests:,.0f}/s", f"{per_s * row.reads.read_bytes / 1e9:,.1f} GB/s",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[10**6, 10**8, 10**9])
    parser.add_argument("--bytes", type=int, default=50_000, help="bytes of a sample")
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--rate", type=float, default=1000, help="samples that a rank trains on in a second")
    options = parser.parse_args()
    member = index_bytes()
    print(f"index: {member:.1f} bytes a member; {options.bytes:,} bytes a sample; {options.rate:,.0f} samples/s a rank")
    print(
        "| samples | ranks | order | plan a step | fetch plan a sample | first step planned | plan memory | "
        "requests a sample | read an epoch | requests an epoch | requests of all | bandwidth of all |"
    )
    print("|" + "---|" * 12)
    for samples in options.samples:
        dataset = made_dataset(samples, options.bytes)
        for ranks in options.ranks:
            for order in ("global", "windowed"):
                print(row_of(measure(dataset, ranks, order), samples, options.rate), flush=True)


if __name__ == "__main__":
    main()
