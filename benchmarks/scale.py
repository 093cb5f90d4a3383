"""What does a run of up to 10⁹ samples on thousands of GPUs ask of a store, a node and a rank?

    python benchmarks/scale.py [--samples 1000000000] [--bytes 50000] [--ranks 64 4096] [--rate 1000]

No store is read. The plan, the location of samples and the requests are those of a Loader; the samples are made
up: tars of 1 GB with members of one size. The link answers at once, and is planned for as one of 20 ms and 1 GB/s. Each
row is one rank in the middle of an epoch, as after a resume; its figures are scaled to all ranks and the whole epoch.

Requests have the default price of `headrace plan`.
"""

import os
import tempfile
import tracemalloc
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from harness import arguments, head, row, seconds, write_tar

import headrace as hr
from headrace.data import ByteColumn, ColumnFiles, Dataset, Location, ObjectPath, StringColumn, Strings
from headrace.data.table import SampleTable
from headrace.fetch import forecast
from headrace.plan import UniformPlan
from headrace.stores import LinkModel, ObjectStore, parse_address
from headrace.tools.plan_command import Prices

SHARD_BYTES, BATCH, STEPS = 1_000_000_000, 256, 128
LINK = LinkModel(latency_s=0.02, bandwidth=1e9, streams=64)
INDEXED = 20_000
"""Members of the tar by which the size of an index is measured."""


class Numbers(Strings):
    """Keys that are the samples' numbers."""

    def __init__(self, count):
        self._count = count

    def __len__(self):
        return self._count

    def take(self, indices):
        return StringColumn.from_list([str(index) for index in np.asarray(indices).tolist()])


@dataclass(frozen=True)
class Shards:
    """Objects by number, without one in memory for each."""

    store: ObjectStore

    def object(self, _, name):
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


def made_dataset(samples, member_bytes):
    per_shard = SHARD_BYTES // (512 + -(-member_bytes // 512) * 512)
    names = StringColumn.from_list([f"train-{number:06d}.tar" for number in range(-(-samples // per_shard))])
    objects = Shards(ObjectStore(parse_address("s3://bucket/train-000000.tar").store))
    files = ColumnFiles("s3://bucket", names, archives=True, objects=objects)
    columns = {"image": MadeColumn(files, member_bytes, per_shard)}
    return Dataset(SampleTable("made shards", Numbers(samples), columns, {}, known_digest="made"))


def measure(dataset, ranks, order, rate):
    """Follow the middle of an epoch for times, and again for memory, whose tracing slows everything down."""
    shape = hr.Windowed(lanes=max(8, ranks)).resolve(dataset) if order == "windowed" else None
    settings = {"batch_size": BATCH, "rank": ranks // 2, "world_size": ranks, "shuffle": True, "window": shape}
    plan_of = partial(UniformPlan, length=len(dataset), **settings)
    reads = []

    def read(seed, steps):
        reads.append(forecast(dataset, ["image"], plan_of(seed=seed), LINK, steps=steps))

    first_s, plan = seconds(lambda: read(0, 1)), plan_of(seed=1)
    steps = range(plan.steps // 2, min(plan.steps, plan.steps // 2 + STEPS))
    plan_s = median(seconds(lambda step=step: plan.batch(1, step)) for step in steps)
    fetch_s, found = seconds(lambda: read(2, STEPS)), reads[-1]
    tracemalloc.start()
    read(3, STEPS)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    samples, per_s = len(dataset), ranks * rate
    return row(
        f"{samples:,}", f"{ranks:,}", order,
        f"{plan_s * 1e6:.0f} µs", f"{fetch_s / found.samples * 1e6:.0f} µs", f"{first_s:.2f} s", f"{peak / 1e6:.0f} MB",
        f"{found.requests:.3f}", f"{samples * found.read_bytes / 1e12:,.2f} TB",
        f"${samples * found.requests * Prices().request:,.0f}", f"{per_s * found.requests:,.0f}/s",
        f"{per_s * found.read_bytes / 1e9:,.1f} GB/s",
    )  # fmt: skip


def index_bytes():
    """Return the bytes of an index for one member of a tar."""
    with tempfile.TemporaryDirectory() as folder:
        members = ((f"{number:09d}.jpg", bytes(512)) for number in range(INDEXED))
        path = write_tar(Path(folder, "made.tar"), members)
        hr.open(str(path))
        return os.path.getsize(f"{path}.headrace") / INDEXED


def main():
    size = {"type": int, "default": 50_000, "help": "bytes of a sample"}
    rate = {"type": float, "default": 1000.0, "help": "samples that a rank trains on in a second"}
    args = arguments(__doc__, samples=[10**6, 10**8, 10**9], bytes=size, ranks=[64, 4096], rate=rate)
    about = f"{args.bytes:,} bytes a sample; {args.rate:,.0f} samples/s a rank"
    print(f"index: {index_bytes():.1f} bytes a member; {about}")
    print(head("samples", "ranks", "order", "plan a step", "fetch plan a sample", "first step planned", "plan memory",
               "requests a sample", "read an epoch", "requests an epoch", "requests of all",
               "bandwidth of all"))  # fmt: skip
    for samples in args.samples:
        dataset = made_dataset(samples, args.bytes)
        for ranks in args.ranks:
            for order in ("global", "windowed"):
                print(measure(dataset, ranks, order, args.rate), flush=True)


if __name__ == "__main__":
    main()
