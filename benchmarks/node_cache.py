"""What share of each epoch does the cache of one node find, where several nodes read a part of the data each?

    python benchmarks/node_cache.py [--samples 8192] [--epochs 20] [--photos FOLDER] [--folder FOLDER] [--speed]

Simulated, for a node of N with a cache of c % of the data, over the second half of the epochs:

    keep first   what came first is kept, nothing is dropped; on one node, the Loader's cache hits as often
    LRU          the least recently used is dropped
    by plan      what the plan reads last is dropped: the Loader's cache on several nodes, by the Loader's own code
    Belady       the bound: each decision knows all that will be read

With PHOTOS, a folder of images, two processes measure it, each a node with a cache of its own of 25 % of the data on a
disk (`--folder`, default: a temporary one), their Loaders side by side; and one process that reads it all. With
`--speed`, how long it takes to find the next uses of 1.3 million samples.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import headrace as hr
from headrace import _core
from headrace.loader.cache_eviction import CacheEviction
from headrace.plan import NextUses, NodeRanks, UniformPlan, WindowShape
from headrace.tools.bench.comparison import environment

BATCH = 16
WINDOW = WindowShape(block=16, blocks=64, lanes=8)
SHARE, SIDE, MEASURED_EPOCHS = 0.25, 64, 6
IMAGENET = 1_300_000

Rates = list[float]


def keep_first(plan: UniformPlan, room: int, epochs: int) -> Rates:
    kept: set[int] = set()

    def use(sample: int) -> bool:
        found = sample in kept
        if len(kept) < room:
            kept.add(sample)
        return found

    return rates_of(plan, epochs, use)


def least_recently_used(plan: UniformPlan, room: int, epochs: int) -> Rates:
    kept: OrderedDict[int, None] = OrderedDict()

    def use(sample: int) -> bool:
        found = sample in kept
        kept[sample] = None
        kept.move_to_end(sample)
        if len(kept) > room:
            kept.popitem(last=False)
        return found

    return rates_of(plan, epochs, use)


def rates_of(plan: UniformPlan, epochs: int, use: Callable[[int], bool]) -> Rates:
    found = []
    for epoch in range(epochs):
        hits = [use(sample) for step in range(plan.steps) for sample in plan.batch(epoch, step).samples.tolist()]
        found.append(sum(hits) / len(hits))
    return found


def belady(plan: UniformPlan, room: int, epochs: int) -> Rates:
    """Drop what is used last, or do not keep what came, with all of the run known and as many epochs after it."""
    sequence = [
        s for e in range(2 * epochs) for step in range(plan.steps) for s in plan.batch(e, step).samples.tolist()
    ]
    next_use, last = [0] * len(sequence), [len(sequence)] * plan.length
    for at in range(len(sequence) - 1, -1, -1):
        next_use[at], last[sequence[at]] = last[sequence[at]], at
    kept: dict[int, int] = {}
    farthest: list[tuple[int, int]] = []
    hits = []
    for at, sample in enumerate(sequence):
        hits.append(sample in kept)
        kept[sample] = next_use[at]
        heapq.heappush(farthest, (-next_use[at], sample))
        while len(kept) > room:
            use, other = heapq.heappop(farthest)
            if kept.get(other) == -use:
                del kept[other]
    epoch = len(sequence) // 2 // epochs
    return [sum(hits[first : first + epoch]) / epoch for first in range(0, epochs * epoch, epoch)]


class SimulatedStore:
    """Entries of a byte each, as `CacheEviction` sees a store and its native one."""

    def __init__(self, entries: int, room: int) -> None:
        self.room_bytes = self.limit_bytes = room
        self.kept = np.zeros(entries, np.uint32)
        self.stopped = 0

    @property
    def native(self) -> SimulatedStore:
        return self

    @property
    def used_bytes(self) -> int:
        return int(self.kept.sum())

    def taken(self, first: int, count: int) -> NDArray[np.uint32]:
        return self.kept[first : first + count]

    def evict(self, indices: NDArray[np.int64]) -> None:
        self.kept[indices] = 0

    def resume(self) -> None:
        self.stopped = 0

    def put(self, samples: NDArray[np.int64]) -> None:
        room = self.limit_bytes - self.used_bytes
        if len(samples) > room:
            self.stopped = _core.CACHE_FULL
        self.kept[samples[:room]] = 1


def by_plan(plan: UniformPlan, room: int, epochs: int) -> Rates:
    uses = NextUses(plan, NodeRanks(plan.rank, plan.rank + 1), base_ids=None, count=plan.length)
    eviction = CacheEviction(uses, fields=1, length=plan.length, steps=plan.steps)
    store, found = SimulatedStore(plan.length, room), []
    for epoch in range(epochs):
        hits = 0
        for step in range(plan.steps):
            eviction.make_room(store, epoch=epoch, step=step)  # type: ignore[arg-type]  # the part of a Store it uses
            samples = plan.batch(epoch, step).samples
            there = store.kept[samples] > 0
            keeps = eviction.keeps(samples, epoch=epoch, step=step)
            store.put(samples[~there if keeps is None else ~there & keeps.view(bool)])
            hits += int(there.sum())
        found.append(hits / (plan.steps * plan.batch_size))
    return found


POLICIES = {"keep first": keep_first, "LRU": least_recently_used, "by plan": by_plan, "Belady": belady}


def simulate(samples: int, epochs: int) -> None:
    print(f"{'order':<10}{'nodes':>6}{'cache':>7}" + "".join(f"{name:>12}" for name in POLICIES))
    for name, window in (("global", None), ("windowed", WINDOW)):
        for nodes in (1, 2, 4, 8):
            plan = UniformPlan(length=samples, batch_size=BATCH, world_size=nodes, seed=3, window=window)
            for share in (0.05, 0.1, 0.25, 0.5):
                later = [
                    float(np.mean(policy(plan, int(share * samples), epochs)[epochs // 2 :]))
                    for policy in (keep_first, least_recently_used, keep_first if nodes == 1 else by_plan, belady)
                ]
                print(f"{name:<10}{nodes:>6}{share:>7.0%}" + "".join(f"{rate:>12.1%}" for rate in later), flush=True)


def measured_node(photos: Path, cache: str, rank: int, nodes: int, order: str) -> Iterator[dict[str, float]]:
    """Yield what each epoch of a Loader found and took."""
    os.environ |= {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    loader = hr.Loader(
        photos, {"image": hr.Image()}, view=hr.Resize((SIDE, SIDE)), batch_size=BATCH, shuffle=True, rank=rank,
        world_size=nodes, output="numpy", threads=1, cache=cache,
        order=hr.Windowed(block_samples=WINDOW.block, window_blocks=WINDOW.blocks) if order == "windowed" else "global",
    )  # fmt: skip
    for _ in range(MEASURED_EPOCHS):
        since = time.process_time()
        for _ in loader:
            pass
        stats = loader.stats().cache
        assert stats is not None
        assert stats.damaged == 0
        assert stats.used_bytes <= stats.limit_bytes
        yield {"hits": stats.hit_rate or 0.0, "cpu_s": time.process_time() - since, "evicted": stats.evicted}


def measure(photos: Path, folder: str) -> None:
    count = len(hr.open(photos))
    print(f"\nmeasured over {count:,} images, a cache of {SHARE:.0%} of them on each node, hits by epoch:")
    for order in ("global", "windowed"):
        for nodes in (1, 2):
            overhead = _core.cache_bytes(count, reuses=nodes > 1)
            limit = overhead + int(SHARE * count) * 3 * SIDE**2
            ranks = [
                subprocess.Popen(
                    [sys.executable, __file__, "--photos", photos, "--node", str(rank), str(nodes), order,
                     f"disk:{folder}/{order}-{nodes}-{rank}:{limit}B"],
                    stdout=subprocess.PIPE, text=True,
                )
                for rank in range(nodes)
            ]  # fmt: skip
            for rank, process in enumerate(ranks):
                out, _ = process.communicate()
                assert process.returncode == 0
                epochs = [json.loads(line) for line in out.splitlines()]
                rates = "".join(f"{epoch['hits']:>8.1%}" for epoch in epochs)
                cpu_us = sum(epoch["cpu_s"] for epoch in epochs[1:]) / (len(epochs) - 1) / (count / nodes) * 1e6
                print(f"{order:<10} node {rank} of {nodes}: {rates}   {cpu_us:,.0f} µs of CPU an image", flush=True)


def speed() -> None:
    """Print CPU seconds of one rank of a node of eight ranks, one of four nodes."""
    for name, window in (("global", None), ("windowed", WindowShape(block=73, blocks=128, lanes=8))):
        plan = UniformPlan(length=IMAGENET, batch_size=32, world_size=32, seed=3, window=window)
        uses = NextUses(plan, NodeRanks(0, 8), base_ids=None, count=IMAGENET)
        times = []
        for epoch in (0, 1):
            since = time.process_time()
            uses.of(np.arange(plan.global_batch), epoch, 5)
            times.append(time.process_time() - since)
        print(
            f"{name}: next uses of {IMAGENET:,} samples, first epoch {times[0]:.2f} s, each later one {times[1]:.2f} s"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=8192)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--node", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node is not None:
        rank, nodes, order, cache = given.node
        for epoch in measured_node(given.photos, cache, int(rank), int(nodes), order):
            print(json.dumps(epoch), flush=True)
        return
    print(environment())
    if given.speed:
        speed()
    simulate(given.samples, given.epochs)
    if given.photos is not None:
        with tempfile.TemporaryDirectory(dir=given.folder, prefix="headrace-cache-") as folder:
            measure(given.photos, folder)


if __name__ == "__main__":
    main()
