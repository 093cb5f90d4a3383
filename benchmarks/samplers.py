"""What does a sampler cost per batch, and before the first one of an epoch, beside torch's own?

    python benchmarks/samplers.py [--samples 1000000] [--batch-size 256] [--rounds 7]

Times the process that draws: under a DataLoader that is the training loop's own. "made" is the sampler's construction,
once a run (BucketBatchSampler: from an array of 1,000 sizes); "first batch" is from iter() to the first list of
indices, once an epoch; "per batch" is the mean of the following 500, and "tracked" the same with each batch counted by
`track`. Rounds are interleaved; medians, and the ratio per batch to torch's BatchSampler over RandomSampler.
"""

import time
from functools import partial
from itertools import islice

import numpy as np
from harness import arguments, in_turns, machine, medians
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler

from headrace.dropins.resumable_samplers import BucketBatchSampler, ResumableBatchSampler, ResumableSampler

BATCHES = 500


class Batches:
    """Stand-in for a DataLoader that gives the lists of indices themselves."""

    def __init__(self, batch_sampler):
        self.batch_sampler = self.sampler = batch_sampler

    def __iter__(self):
        return iter(self.batch_sampler)

    def __len__(self):
        return len(self.batch_sampler)


def samplers(samples, size):
    """Return what makes each sampler."""
    sizes = np.random.default_rng(0).integers(0, [40, 25], (samples, 2))

    def batched(sampler):
        return BatchSampler(sampler, size, drop_last=False)

    def tracked():
        sampler = ResumableBatchSampler(samples, size)
        return sampler.track(Batches(sampler))

    return {
        "RandomSampler (torch)": lambda: batched(RandomSampler(range(samples))),
        "DistributedSampler (torch)": lambda: batched(DistributedSampler(range(samples), num_replicas=1, rank=0)),
        "ResumableSampler": lambda: batched(ResumableSampler(samples)),
        "ResumableBatchSampler": lambda: ResumableBatchSampler(samples, size),
        "ResumableBatchSampler, tracked": tracked,
        "BucketBatchSampler": lambda: BucketBatchSampler(sizes, size),
    }


def timed(make):
    """Return the seconds of construction, of the first batch, and per batch after it."""
    begin = time.perf_counter()
    sampler = make()
    made = time.perf_counter()
    batches = iter(sampler)
    next(batches)
    first = time.perf_counter()
    count = sum(1 for _ in islice(batches, BATCHES))
    return made - begin, first - made, (time.perf_counter() - first) / count


def main():
    args = arguments(__doc__, samples=1_000_000, batch_size=256, rounds=7)
    cases = {name: partial(timed, make) for name, make in samplers(args.samples, args.batch_size).items()}
    found = medians(in_turns(cases, args.rounds))
    print(f"{machine()}\n{args.samples:,} samples, batches of {args.batch_size}, medians of {args.rounds} rounds\n")
    print(f"{'':<32}{'made':>10}{'first batch':>14}{'per batch':>12}{'ratio':>8}")
    for name, (made, first, each) in found.items():
        ratio = each / found["RandomSampler (torch)"][2]
        print(f"{name:<32}{1e3 * made:>7.1f} ms{1e3 * first:>11.2f} ms{1e6 * each:>9.0f} us{ratio:>8.2f}")


if __name__ == "__main__":
    main()
