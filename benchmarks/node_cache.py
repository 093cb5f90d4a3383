"""What share of each epoch does the cache of one node find, where several nodes read a part of the data each?

    python benchmarks/node_cache.py [--samples 8192] [--epochs 20]

Simulated, for a node of N with a cache of c % of the data, over the second half of the epochs:

    keep first   what came first is cached, nothing is dropped; on one node, the Loader's cache hits as often
    LRU          the least recently used is dropped
    by plan      what the plan reads last is dropped: the Loader's cache on several nodes, by the Loader's own code
    Belady       the bound: each decision knows all that will be read
"""

import heapq
from collections import OrderedDict

import numpy as np
from harness import arguments, machine

from headrace import _core
from headrace.loader.cache_eviction import CacheEviction
from headrace.plan import NextUses, NodeRanks, UniformPlan, WindowShape

BATCH = 16


def samples_of(plan, epoch):
    return np.concatenate([plan.batch(epoch, step).samples for step in range(plan.steps)]).tolist()


def keep_first(plan, room, epochs):
    cached, rates = set(), []
    for epoch in range(epochs):
        hits, samples = 0, samples_of(plan, epoch)
        for sample in samples:
            hits += sample in cached
            if len(cached) < room:
                cached.add(sample)
        rates.append(hits / len(samples))
    return rates


def least_recently_used(plan, room, epochs):
    cached, rates = OrderedDict(), []
    for epoch in range(epochs):
        hits, samples = 0, samples_of(plan, epoch)
        for sample in samples:
            hits += sample in cached
            cached[sample] = None
            cached.move_to_end(sample)
            if len(cached) > room:
                cached.popitem(last=False)
        rates.append(hits / len(samples))
    return rates


def belady(plan, room, epochs):
    """Drop what is used last, or do not cache what came, with all of the run known and as many epochs after it."""
    sequence = sum((samples_of(plan, epoch) for epoch in range(2 * epochs)), [])  # noqa: RUF017  # few epochs
    next_use, last = [0] * len(sequence), [len(sequence)] * plan.length
    for at in range(len(sequence) - 1, -1, -1):
        next_use[at], last[sequence[at]] = last[sequence[at]], at
    cached, farthest, hits = {}, [], []
    for at, sample in enumerate(sequence):
        hits.append(sample in cached)
        cached[sample] = next_use[at]
        heapq.heappush(farthest, (-next_use[at], sample))
        while len(cached) > room:
            use, other = heapq.heappop(farthest)
            if cached.get(other) == -use:
                del cached[other]
    return np.reshape(hits, (2 * epochs, -1)).mean(axis=1)[:epochs].tolist()


class SimulatedStore:
    """Entries of a byte each, as `CacheEviction` sees a store and its native one."""

    def __init__(self, entries, room):
        self.room_bytes = self.limit_bytes = room
        self.cached, self.stopped, self.native = np.zeros(entries, np.uint32), 0, self

    @property
    def used_bytes(self):
        return int(self.cached.sum())

    def taken(self, first, count):
        return self.cached[first : first + count]

    def evict(self, indices):
        self.cached[indices] = 0

    def resume(self):
        self.stopped = 0

    def put(self, samples):
        room = self.limit_bytes - self.used_bytes
        if len(samples) > room:
            self.stopped = _core.CACHE_FULL
        self.cached[samples[:room]] = 1


def by_plan(plan, room, epochs):
    uses = NextUses(plan, NodeRanks(plan.rank, plan.rank + 1), base_ids=None, count=plan.length)
    eviction = CacheEviction(uses, fields=1, length=plan.length, steps=plan.steps)
    store, rates = SimulatedStore(plan.length, room), []
    for epoch in range(epochs):
        hits = 0
        for step in range(plan.steps):
            eviction.make_room(store, epoch=epoch, step=step)
            samples = plan.batch(epoch, step).samples
            there = store.cached[samples] > 0
            keeps = eviction.keeps(samples, epoch=epoch, step=step)
            store.put(samples[~there if keeps is None else ~there & keeps.view(bool)])
            hits += int(there.sum())
        rates.append(hits / (plan.steps * plan.batch_size))
    return rates


def main():
    args = arguments(__doc__, samples=8192, epochs=20)
    print(machine())
    print(f"{'order':<10}{'nodes':>6}{'cache':>7}{'keep first':>12}{'LRU':>12}{'by plan':>12}{'Belady':>12}")
    for name, window in (("global", None), ("windowed", WindowShape(block=16, blocks=64, lanes=8))):
        for nodes in (1, 2, 4, 8):
            plan = UniformPlan(length=args.samples, batch_size=BATCH, world_size=nodes, seed=3, window=window)
            policies = (keep_first, least_recently_used, keep_first if nodes == 1 else by_plan, belady)
            for share in (0.05, 0.1, 0.25, 0.5):
                rates = (policy(plan, int(share * args.samples), args.epochs) for policy in policies)
                later = "".join(f"{np.mean(each[args.epochs // 2 :]):>12.1%}" for each in rates)
                print(f"{name:<10}{nodes:>6}{share:>7.0%}{later}", flush=True)


if __name__ == "__main__":
    main()
