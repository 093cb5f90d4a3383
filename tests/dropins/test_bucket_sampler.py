"""`BucketBatchSampler`: one shape on every rank at every step. Its battery is in test_samplers.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampler_loaders import BUCKETS, flat, sampler_of

from headrace.dropins.resumable_samplers import BucketBatchSampler
from headrace.errors import StateError, UsageError
from headrace.plan import ListedMembers, Order, bucket_plan

SIZES = np.random.default_rng(1).choice([224, 256, 320], (500, 2), p=[0.2, 0.5, 0.3])


@pytest.mark.parametrize("remainder", ["short", "drop", "wrap"])
@pytest.mark.parametrize("world_size", [1, 2, 8])
def test_every_rank_has_one_shape_and_the_same_one_at_every_step(world_size, remainder):
    ranks = [
        list(BucketBatchSampler(SIZES, 24 // world_size, remainder=remainder, rank=rank, world_size=world_size))
        for rank in range(world_size)
    ]
    for parts in zip(*ranks, strict=True):
        assert all(parts), "an empty batch"
        assert len({tuple(SIZES[sample]) for sample in flat(parts)}) == 1
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_batches_are_the_plans():
    plan = bucket_plan(ListedMembers.of(BUCKETS), Order(world_size=2, rank=1, seed=5), batch_size=6)
    sampler = sampler_of("buckets", batch_size=6, rank=1, world_size=2)
    for epoch in range(2):
        assert list(sampler) == [plan.batch(epoch, step).samples.tolist() for step in range(plan.steps)]
    assert (len(sampler), sampler.buckets) == (plan.steps, 3)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_a_batch_of_fewer_samples_than_ranks_repeats_some_of_them_and_counts_it(world_size):
    """Global batches of 8 leave 1 of a, and b has 3 in all."""
    ranks = [
        BucketBatchSampler("a" * 17 + "b" * 3, 8 // world_size, rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    steps = list(zip(*ranks, strict=True))
    assert all(all(parts) for parts in steps)
    samples = flat(flat(steps))
    assert sorted(set(samples)) == list(range(20))
    assert len(samples) - 20 == ranks[0].repeated == world_size - 1 + max(0, world_size - 3)
    of_b = [samples.count(sample) for sample in (17, 18, 19)]
    assert max(of_b) - min(of_b) <= 1, "repeats are spread over the batch"


@pytest.mark.parametrize(
    ("remainder", "left_out", "repeated"), [("short", 0, 0), ("drop", 10 + 6, 0), ("wrap", 0, 2 + 6)]
)
def test_what_is_left_out_and_repeated_is_counted(remainder, left_out, repeated):
    sampler = sampler_of("buckets", remainder=remainder)
    assert (sampler.left_out, sampler.repeated) == (left_out, repeated)
    assert len(flat(list(sampler))) == 40 - left_out + repeated


def test_buckets_may_be_a_tensor():
    expected = list(BucketBatchSampler(SIZES, 16))
    assert list(BucketBatchSampler(torch.from_numpy(SIZES), 16)) == expected
    assert list(BucketBatchSampler([tuple(size) for size in SIZES.tolist()], 16)) == expected


def test_lengths_are_put_into_classes_by_numpy():
    """As the documentation has it."""
    lengths = np.random.default_rng(2).integers(1, 200, 300)
    sampler = BucketBatchSampler(np.searchsorted([64, 128], lengths), 10)
    assert sampler.buckets == 3
    for batch in sampler:
        assert len({int(length > 64) + int(length > 128) for length in lengths[batch]}) == 1


def test_buckets_may_be_a_series_whose_labels_do_not_begin_with_0():
    class Series:
        """As pandas has it, after rows were filtered."""

        def __len__(self):
            return 4

        def __getitem__(self, label):
            raise KeyError(label)

        def __array__(self, dtype=None, copy=None):
            return np.array([7, 7, 9, 9], dtype)

    assert BucketBatchSampler(Series(), 2).buckets == 2


def test_a_list_of_tensors_is_refused():
    """They are hashable, by identity."""
    with pytest.raises(UsageError, match=r"got a list of tensors; pass torch.stack\(buckets\)"):
        BucketBatchSampler(list(torch.from_numpy(SIZES)), 16)


def test_a_state_of_other_buckets_is_refused():
    state = BucketBatchSampler("aabb", 2).state_dict()
    BucketBatchSampler(["x", "x", "y", "y"], 2).load_state_dict(state)
    with pytest.raises(StateError, match=r"expected dataset 'buckets [0-9a-f]+' as in this loader, got 'buckets"):
        BucketBatchSampler("abab", 2).load_state_dict(state)
