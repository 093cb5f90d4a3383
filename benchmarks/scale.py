"""What does a run of up to 10⁹ samples on thousands of GPUs ask of a store, a node and a rank?

    python benchmarks/scale.py [--samples 1000000000] [--bytes 50000] [--ranks 64 4096] [--rate 1000]

No store is read. The plan, the location of samples and the requests are those of a Loader; the samples are made
up: tars of 1 GB with members of one size. The link answers at once, and is planned for as one of 20 ms and 1 GB/s. Each
row is one rank in the middle of an epoch, as after a resume; its figures are scaled to all ranks and the whole epoch.

Prices are those of S3 Standard in us-east-1 on 2026-11-27, within one region: edit `PRICE_OF_A_REQUEST`.
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
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import headrace as hr
from headrace.data import ByteColumn, ColumnFiles, Dataset, Location, ObjectPath, StringColumn, Strings
from headrace.data.table import SampleTable
from headrace.fetch import ahead
from headrace.fetch.read_groups import memory_limit
from headrace.plan import UniformPlan
from headrace.stores import LinkModel, ObjectStore, parse_address

PRICE_OF_A_REQUEST = 0.0004 / 1000
SHARD_BYTES = 1_000_000_000
BATCH = 256
STEPS = 64
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

    def object(self, number: int, _: bytes) -> ObjectPath:
        return ObjectPath(self.store, f"train-{number:06d}.tar")


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
    names = Numbers(-(-samples // per_shard))
    objects = Shards(ObjectStore(parse_address("s3://bucket/train-000000.tar").store))
    files = ColumnFiles("s3://bucket", names, archives=True, objects=objects)
    column = MadeColumn(files, member_bytes, per_shard)
    return Dataset(SampleTable("made shards", Numbers(samples), {"image": column}, {}, known_digest="made"))


class CountingEngine:
    """Engine that answers each request at once, and counts them."""

    made: CountingEngine

    def __init__(self) -> None:
        self.requests = self.bytes = 0
        CountingEngine.made = self

    def model(self) -> LinkModel:
        return LINK

    def fetch(self, requests: Any) -> Future[Any]:
        self.requests += len(requests)
        self.bytes += sum(each.bytes for each in requests)
        answered: Future[Any] = Future()
        answered.set_result(b"")
        return answered

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Row:
    """One rank of a run."""

    ranks: int
    order: str
    plan_us: float
    """Time to plan a step, without its requests."""
    fetch_us: float
    """Time to locate a step's samples and to plan their requests."""
    first_s: float
    """Time until the requests of the first step after a resume are planned."""
    planned_bytes: int
    """Python memory of the plan and of the requests in flight, without the samples' bytes."""
    ahead_bytes: int
    """Limit of the samples' bytes in memory."""
    requests: float
    """Requests for a sample."""
    read: float
    """Bytes read for a byte of a sample."""


def measure(dataset: Dataset, ranks: int, order: str) -> Row:
    """Run the middle of an epoch twice: for times, and for memory, whose tracing slows everything down."""
    timed = _run(dataset, ranks, order)
    tracemalloc.start()
    _run(dataset, ranks, order)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return replace(timed, planned_bytes=peak)


def _run(dataset: Dataset, ranks: int, order: str) -> Row:
    begun_s = time.perf_counter()
    window = None
    if order == "windowed":
        window = hr.Windowed(lanes=max(8, ranks), window_blocks=16 * max(8, ranks)).resolve(dataset)
    plan = UniformPlan(
        length=len(dataset), batch_size=BATCH, rank=ranks // 2, world_size=ranks, seed=0, shuffle=True, window=window
    )
    first = plan.steps // 2
    limit = memory_limit(dataset, plan)
    fetching = ahead.FetchAhead(dataset, ["image"], plan, epoch=3, first_step=first, limit_bytes=limit)
    fetching.begin(first)
    plan.batch(3, first)
    first_s = time.perf_counter() - begun_s
    plan_s, fetch_s = [], 0.0
    steps = range(first, min(plan.steps, first + max(STEPS, 2 * plan.window_samples // BATCH)))
    for step in steps:
        start = time.perf_counter()
        plan.batch(3, step)
        planned = time.perf_counter()
        fetching.begin(step)
        fetching.end(step)
        plan_s.append(planned - start)
        fetch_s += time.perf_counter() - planned
    engine, wanted = CountingEngine.made, fetching._wanted_bytes
    samples = wanted / int(dataset.locate("image", np.zeros(1, np.int64)).length[0])  # type: ignore[index]
    return Row(
        ranks=ranks,
        order=order,
        plan_us=statistics.median(plan_s) * 1e6,
        fetch_us=fetch_s / len(steps) * 1e6,
        first_s=first_s,
        planned_bytes=0,
        ahead_bytes=limit,
        requests=engine.requests / samples,
        read=engine.bytes / wanted,
    )


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


def row_of(row: Row, samples: int, member_bytes: int, rate: float) -> str:
    """Return a line of the table: figures of a rank, then of the whole run."""
    total, requests = samples * member_bytes * row.read, samples * row.requests
    per_s = row.ranks * rate
    cells = [
        f"{samples:,}", f"{row.ranks:,}", row.order,
        f"{row.plan_us:.0f} µs", f"{row.fetch_us / 1e3:.1f} ms", f"{row.first_s:.2f} s",
        f"{row.planned_bytes / 1e6:.0f} MB",
        f"{row.requests:.3f}", f"{total / 1e12:,.2f} TB", f"${requests * PRICE_OF_A_REQUEST:,.0f}",
        f"{per_s * row.requests:,.0f}/s", f"{per_s * member_bytes * row.read / 1e9:,.1f} GB/s",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[10**6, 10**8, 10**9])
    parser.add_argument("--bytes", type=int, default=50_000, help="bytes of a sample")
    parser.add_argument("--ranks", type=int, nargs="+", default=[64, 4096])
    parser.add_argument("--rate", type=float, default=1000, help="samples that a rank trains on in a second")
    options = parser.parse_args()
    ahead.RequestEngine = CountingEngine  # type: ignore[misc,assignment]
    member = index_bytes()
    print(f"index: {member:.1f} bytes a member; {options.bytes:,} bytes a sample; {options.rate:,.0f} samples/s a rank")
    print(
        "| samples | ranks | order | plan a step | fetch plan a step | first step planned | plan memory | "
        "requests a sample | read an epoch | requests an epoch | requests of all | bandwidth of all |"
    )
    print("|" + "---|" * 12)
    for samples in options.samples:
        dataset = made_dataset(samples, options.bytes)
        for ranks in options.ranks:
            for order in ("global", "windowed"):
                print(row_of(measure(dataset, ranks, order), samples, options.bytes, options.rate), flush=True)


if __name__ == "__main__":
    main()
