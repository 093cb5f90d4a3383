"""What does a sampler cost per batch, and before the first one of an epoch, beside torch's own?

    python benchmarks/samplers.py [--samples 1000000] [--batch-size 256] [--rounds 7]

Times the process that draws: under a DataLoader that is the training loop's own. "made" is the sampler's construction,
once a run (BucketBatchSampler: from an array of 1,000 sizes); "first batch" is from iter() to the first list of
indices, once an epoch; "per batch" is the mean of the following 500, and "tracked" the same with each batch counted by
`track`. Rounds are interleaved; medians, and the ratio per batch to torch's BatchSampler over RandomSampler.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

from headrace.dropins.resumable_samplers import BucketBatchSampler, ResumableBatchSampler, ResumableSampler
from headrace.tools.bench.comparison import environment

BATCHES = 500
BASE = "RandomSampler (torch)"


class Batches:
    """As a DataLoader that gives the lists of indices themselves."""

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = self.sampler = batch_sampler

    def __iter__(self) -> Iterator[Any]:
        return iter(self.batch_sampler)

    def __len__(self) -> int:
        return len(self.batch_sampler)


def tracked(samples: int, batch_size: int) -> Any:
    sampler = ResumableBatchSampler(samples, batch_size)
    return sampler.track(Batches(sampler))


def samplers(samples: int, batch_size: int) -> dict[str, Callable[[], Any]]:
    """Makers of what yields lists of indices."""
    sizes = np.random.default_rng(0).integers(0, [40, 25], (samples, 2))
    indices = range(samples)
    return {
        BASE: lambda: BatchSampler(RandomSampler(indices), batch_size, drop_last=False),
        "DistributedSampler (torch)": lambda: BatchSampler(
            DistributedSampler(indices, num_replicas=1, rank=0), batch_size, drop_last=False
        ),
        "ResumableSampler": lambda: BatchSampler(ResumableSampler(samples), batch_size, drop_last=False),
        "ResumableBatchSampler": lambda: ResumableBatchSampler(samples, batch_size),
        "ResumableBatchSampler, tracked": lambda: tracked(samples, batch_size),
        "BucketBatchSampler": lambda: BucketBatchSampler(sizes, batch_size),
    }


def seconds(make: Callable[[], Any]) -> tuple[float, float, float]:
    """Of construction, of the first batch, and per batch after it."""
    begin = time.perf_counter()
    sampler = make()
    made = time.perf_counter()
    batches = iter(sampler)
    next(batches)
    first = time.perf_counter()
    count = sum(1 for _ in islice(batches, BATCHES))
    return made - begin, first - made, (time.perf_counter() - first) / count


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--samples", type=int, default=1_000_000)
    ask.add_argument("--batch-size", type=int, default=256)
    ask.add_argument("--rounds", type=int, default=7)
    args = ask.parse_args()
    makers = samplers(args.samples, args.batch_size)
    rounds = [{name: seconds(make) for name, make in makers.items()} for _ in range(args.rounds)]
    here = environment()
    print(f"{here.cpu}, {here.cores} cores, torch {here.packages['torch']}, {here.date}")
    print(f"{args.samples:,} samples, batches of {args.batch_size}, medians of {args.rounds} rounds\n")
    print(f"{'':<32}{'made':>10}{'first batch':>14}{'per batch':>12}{'ratio':>8}")
    for name in makers:
        made, first, each = (statistics.median(found[name][i] for found in rounds) for i in range(3))
        ratio = statistics.median(found[name][2] / found[BASE][2] for found in rounds)
        print(f"{name:<32}{1e3 * made:>7.1f} ms{1e3 * first:>11.2f} ms{1e6 * each:>9.0f} us{ratio:>8.2f}")


if __name__ == "__main__":
    main()
