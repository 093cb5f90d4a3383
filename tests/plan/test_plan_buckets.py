"""The bucket plan: one bucket a batch, every sample once, ranks that join to world size 1, and uniform draws."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from twin import rng as twin

from headrace.errors import UsageError
from headrace.plan import ListedMembers, Order, ShapedPlan, bucket_plan
from headrace.plan.order import world_sizes


def slow_epoch(values, *, global_batch, shuffle, seed, remainder, epoch):
    """Every global batch of an epoch as a list of (sample, pass), by lists and dicts."""
    buckets = {}
    for sample, value in enumerate(values):
        buckets.setdefault(value, []).append(sample)
    key = twin.hash64(seed, epoch)
    batches = [
        batch
        for number, members in enumerate(buckets.values())
        for batch in slow_bucket(members, twin.hash64(key, 1 + number), global_batch, shuffle, remainder)
    ]
    if not shuffle:
        return sorted(batches)
    return [batches[twin.permute(len(batches), twin.hash64(key, 0), step)] for step in range(len(batches))]


def slow_bucket(members, key, global_batch, shuffle, remainder):
    count = len(members)
    order = [members[twin.permute(count, key, place) if shuffle else place] for place in range(count)]
    whole = -(-count // global_batch) * global_batch
    slots = {"short": count, "drop": count // global_batch * global_batch, "wrap": whole}[remainder]
    dealt = [(order[slot % count], slot // count) for slot in range(slots)]
    return [dealt[first : first + global_batch] for first in range(0, slots, global_batch)]


def plan_of_buckets(*, buckets, batch_size, **order) -> ShapedPlan:
    return bucket_plan(buckets, Order(**order), batch_size=batch_size)


@st.composite
def cases(draw):
    """Values of a dataset, and parameters of a plan of world size 1."""
    values = draw(st.lists(st.integers(0, 5), min_size=1, max_size=60))
    remainder = draw(st.sampled_from(["short", "drop", "wrap"]))
    largest = max(Counter(values).values())
    return values, {
        "batch_size": draw(st.integers(1, largest if remainder == "drop" else 16)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "remainder": remainder,
    }


@given(cases(), st.integers(0, 2**40))
def test_equals_an_independent_slow_implementation(case, epoch):
    values, parameters = case
    plan = plan_of_buckets(buckets=ListedMembers.of(values), **parameters)
    slow = {name: value for name, value in parameters.items() if name != "batch_size"}
    expected = slow_epoch(values, global_batch=plan.global_batch, epoch=epoch, **slow)
    batches = [plan.batch(epoch, step) for step in range(plan.steps)]
    got = [list(zip(batch.samples.tolist(), batch.passes.tolist(), strict=True)) for batch in batches]
    assert got == expected
    assert all(batch.samples.dtype == np.int64 and batch.passes.dtype == np.uint32 for batch in batches)
    assert [(batch.epoch, batch.step) for batch in batches] == [(epoch, step) for step in range(plan.steps)]


@given(cases(), st.integers(0, 5))
def test_ranks_joined_are_the_batch_of_world_size_one(case, epoch):
    values, parameters = case
    buckets = ListedMembers.of(values)
    alone = plan_of_buckets(buckets=buckets, **parameters)
    for world_size in world_sizes(alone.global_batch):
        split = {**parameters, "batch_size": alone.global_batch // world_size, "world_size": world_size}
        plans = [plan_of_buckets(buckets=buckets, **split, rank=rank) for rank in range(world_size)]
        empty = 0
        for step in range(alone.steps):
            parts = [plan.batch(epoch, step) for plan in plans]
            whole = alone.batch(epoch, step)
            for name in ("samples", "passes", "positions"):
                assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
            empty += sum(len(part.samples) == 0 for part in parts)
        assert empty == plans[0].empty_parts


@given(cases(), st.integers(0, 5))
def test_an_epoch_holds_every_sample_once_and_counts_what_it_leaves_out_or_repeats(case, epoch):
    values, parameters = case
    plan = plan_of_buckets(buckets=ListedMembers.of(values), **parameters)
    batches = [plan.batch(epoch, step) for step in range(plan.steps)]
    assert all(len({values[sample] for sample in batch.samples}) == 1 for batch in batches), "one bucket a batch"
    samples = np.concatenate([batch.samples for batch in batches])
    passes = np.concatenate([batch.passes for batch in batches])
    positions = np.concatenate([batch.positions for batch in batches])
    assert len(samples) == plan.length - plan.left_out + plan.repeated
    assert len(set(zip(samples.tolist(), passes.tolist(), strict=True))) == len(samples)
    assert len(set(positions.tolist())) == len(positions)
    assert len(set(samples.tolist())) == plan.length - plan.left_out
    if plan.remainder == "short":
        assert plan.left_out == plan.repeated == 0


def test_without_shuffle_batches_come_in_the_order_of_their_first_samples():
    plan = plan_of_buckets(buckets=ListedMembers.of("aabbabab"), batch_size=2, shuffle=False)
    assert [plan.batch(3, step).samples.tolist() for step in range(4)] == [[0, 1], [2, 3], [4, 6], [5, 7]]


@pytest.mark.parametrize(
    ("remainder", "steps", "left_out", "repeated", "empty_parts"),
    [("short", 5, 0, 0, 6), ("drop", 2, 6, 0, 0), ("wrap", 5, 0, 6, 0)],
)
def test_what_becomes_of_the_last_samples_of_each_bucket(remainder, steps, left_out, repeated, empty_parts):
    """Global batches of 4 leave 2, 1 and 3 samples of the buckets, for 4 ranks."""
    buckets = ListedMembers.of("a" * 6 + "b" * 5 + "c" * 3)
    plan = plan_of_buckets(buckets=buckets, batch_size=1, world_size=4, remainder=remainder)
    counted = plan.steps, plan.left_out, plan.repeated, plan.empty_parts
    assert counted == (steps, left_out, repeated, empty_parts)


# --- draws ---


def test_every_batch_is_equally_likely_at_every_step():
    """Batches are told by bucket and size: of six, three are whole ones of a."""
    plan = plan_of_buckets(buckets=ListedMembers.of("a" * 14 + "b" * 5), batch_size=4)
    for step in (0, 3):
        counts = Counter()
        for epoch in range(3000):
            samples = plan.batch(epoch, step).samples
            counts["a" if samples[0] < 14 else "b", len(samples)] += 1
        seen = [counts[kind] for kind in (("a", 4), ("a", 2), ("b", 4), ("b", 1))]
        assert stats.chisquare(seen, [1500, 500, 500, 500]).pvalue > 1e-3


def test_every_company_is_equally_likely():
    """Which two of its bucket's other five samples come with sample 0: 10 pairs."""
    plan = plan_of_buckets(buckets=ListedMembers.of("xyxyxyxyxyxy"), batch_size=3)
    counts = Counter()
    for epoch in range(2000):
        batch = next(batch for step in range(4) if 0 in (batch := plan.batch(epoch, step).samples))
        counts[tuple(sorted(batch.tolist()))] += 1
    assert len(counts) == 10
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_every_sample_of_a_bucket_is_equally_likely_to_be_left_out():
    plan = plan_of_buckets(buckets=ListedMembers.of("a" * 7 + "b" * 3), batch_size=3, remainder="drop")
    counts = np.zeros(10)
    for epoch in range(1400):
        taken = np.concatenate([plan.batch(epoch, step).samples for step in range(plan.steps)])
        counts[np.setdiff1d(np.arange(10), taken)] += 1
    assert counts[7:].tolist() == [0, 0, 0]
    assert stats.chisquare(counts[:7]).pvalue > 1e-3


def test_buckets_of_one_size_are_drawn_apart():
    plan = plan_of_buckets(buckets=ListedMembers.of("a" * 50 + "b" * 50), batch_size=50)
    for epoch in range(3):
        first, second = sorted((plan.batch(epoch, step).samples.tolist() for step in range(2)), key=min)
        assert first != [sample - 50 for sample in second]


# --- what a bucket is ---

SIZES = [(3, 2), (1, 2), (3, 2), (0, 9), (1, 2)]


@pytest.mark.parametrize(
    "values",
    [
        SIZES,
        np.array(SIZES),
        np.array(SIZES, np.float32),
        ["tall", "wide", "tall", "odd", "wide"],
        np.array(["tall", "wide", "tall", "odd", "wide"]),
        np.array(["tall", None, "tall", 3, None], object),
        [2, 1, 2, 0, 1],
        np.array([-2, 1, -2, 7, 1], np.int8),
    ],
    ids=lambda values: f"{type(values).__name__} {getattr(values, 'dtype', '')}",
)
def test_only_which_samples_are_equal_matters(values):
    buckets = ListedMembers.of(values)
    assert buckets.members.tolist() == [0, 2, 1, 4, 3]
    assert buckets.offsets.tolist() == [0, 2, 4, 5]
    assert buckets.counts.tolist() == [2, 2, 1]
    assert len(buckets.counts) == 3
    assert buckets.digest == ListedMembers.of("ABACB").digest
    assert buckets.digest != ListedMembers.of("ABACC").digest


@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(-3, 3), st.integers(0, 1)), min_size=1, max_size=60))
def test_rows_of_an_array_are_tuples(rows):
    got, expected = ListedMembers.of(np.array(rows)), ListedMembers.of(rows)
    assert np.array_equal(got.members, expected.members)
    assert np.array_equal(got.offsets, expected.offsets)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ([[1], [2]], "buckets: expected one hashable value per sample, .* got list: .*unhashable type: 'list'"),
        (5, "got int: .*'int'"),
        (np.zeros((2, 2, 2)), r"buckets: expected an array of shape \[length\] or \[length, n\], got \[2, 2, 2\]"),
        (np.zeros(()), r"got \[\]"),
        (np.zeros((3, 0)), r"got \[3, 0\]"),
    ],
)
def test_what_is_no_bucket_is_refused(values, says):
    with pytest.raises(UsageError, match=says):
        ListedMembers.of(values)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"buckets": ListedMembers.of([])}, "length: expected an int from 1 .* holds no sample"),
        ({"batch_size": 0}, "batch_size: expected an int from 1"),
        ({"seed": -1}, "seed: expected"),
        ({"remainder": "pad"}, "expected 'short', 'drop' or 'wrap', got 'pad'"),
        (
            {"remainder": "drop", "batch_size": 2, "world_size": 2},
            "at most the 3 samples of the largest bucket, got 2 x 2 ranks = 4; lower batch_size, or use",
        ),
    ],
)
def test_a_wrong_argument_is_named(change, says):
    with pytest.raises(UsageError, match=says):
        plan_of_buckets(**{"buckets": ListedMembers.of("aaabb"), "batch_size": 2, **change})


@pytest.mark.parametrize(("epoch", "step"), [(-1, 0), (0, -1), (0, 3), (True, 0), (0, 1.0)])
def test_a_step_outside_the_epoch_is_refused(epoch, step):
    with pytest.raises(UsageError, match=r"epoch: expected|step: expected"):
        plan_of_buckets(buckets=ListedMembers.of("aaabb"), batch_size=2).batch(epoch, step)
