"""The plan: every sample exactly once, ranks that join to world size 1, and counted remainders."""

from __future__ import annotations

import time
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from twin import rng as twin

from headrace.errors import UsageError
from headrace.plan import Order, UniformPlan
from headrace.plan.order import world_sizes


def joined(plan_of_rank, world_size, epoch, step):
    """The parts of all ranks in rank order."""
    parts = [plan_of_rank(rank).batch(epoch, step) for rank in range(world_size)]
    return [np.concatenate([getattr(part, name) for part in parts]) for name in ("samples", "passes", "positions")]


@st.composite
def plans(draw, remainders=("short", "drop", "wrap")):
    """Parameters of a plan of world size 1."""
    length = draw(st.integers(1, 300))
    remainder = draw(st.sampled_from(remainders))
    most = length if remainder == "drop" else 2 * length + 3
    return {
        "length": length,
        "batch_size": draw(st.integers(1, most)),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "remainder": remainder,
    }


@given(plans(), st.integers(0, 5))
def test_ranks_joined_are_the_batch_of_world_size_one(parameters, epoch):
    alone = UniformPlan(**parameters)
    for world_size in world_sizes(alone.global_batch):
        split = {**parameters, "batch_size": alone.global_batch // world_size, "world_size": world_size}
        for step in {0, alone.steps // 2, alone.steps - 1}:
            whole = alone.batch(epoch, step)
            got = joined(lambda rank, split=split: UniformPlan(**split, rank=rank), world_size, epoch, step)
            for part, expected in zip(got, (whole.samples, whole.passes, whole.positions), strict=True):
                assert np.array_equal(part, expected)
                assert part.dtype == expected.dtype


@given(plans(), st.integers(0, 2**40))
def test_an_epoch_holds_every_sample_once_and_counts_what_it_leaves_out_or_repeats(parameters, epoch):
    plan = UniformPlan(**parameters)
    batches = [plan.batch(epoch, step) for step in range(plan.steps)]
    samples = np.concatenate([batch.samples for batch in batches])
    positions = np.concatenate([batch.positions for batch in batches])
    passes = np.concatenate([batch.passes for batch in batches])
    assert np.array_equal(positions, np.arange(len(positions)))
    assert len(samples) == plan.length - plan.left_out + plan.repeated
    counts = Counter(zip(samples.tolist(), passes.tolist(), strict=True))
    assert set(counts.values()) == {1}, "no sample comes twice in one pass"
    assert sum(number == 0 for _, number in counts) == plan.length - plan.left_out
    if plan.remainder == "short":
        assert sorted(samples.tolist()) == list(range(plan.length))
        assert plan.left_out == plan.repeated == 0


@pytest.mark.parametrize(
    ("remainder", "steps", "last", "left_out", "repeated"),
    [("short", 3, 2, 0, 0), ("drop", 2, 4, 2, 0), ("wrap", 3, 4, 0, 2)],
)
def test_what_becomes_of_the_last_samples(remainder, steps, last, left_out, repeated):
    plan = UniformPlan(length=10, batch_size=4, remainder=remainder)
    assert (plan.steps, len(plan.batch(0, steps - 1).samples)) == (steps, last)
    assert (plan.left_out, plan.repeated) == (left_out, repeated)


def test_wrap_goes_on_from_the_start_of_the_same_epoch_in_the_next_pass():
    plan = UniformPlan(length=3, batch_size=8, remainder="wrap", seed=5)
    batch = plan.batch(2, 0)
    order = batch.samples[:3]
    assert batch.samples.tolist() == np.resize(order, 8).tolist()
    assert batch.passes.tolist() == [0, 0, 0, 1, 1, 1, 2, 2]
    assert batch.positions.tolist() == list(range(8))
    assert (plan.steps, plan.repeated) == (1, 5)


def test_without_shuffle_samples_come_in_order():
    plan = UniformPlan(length=10, batch_size=2, world_size=2, rank=1, shuffle=False)
    assert [plan.batch(9, step).samples.tolist() for step in range(3)] == [[2, 3], [6, 7], [9]]


def test_the_order_is_the_keyed_permutation():
    plan = UniformPlan(length=1000, batch_size=10, seed=2**64 - 1)
    expected = [twin.permute(1000, twin.hash64(2**64 - 1, 3), position) for position in range(20, 30)]
    assert plan.batch(3, 2).samples.tolist() == expected
    assert plan.key(3) == twin.hash64(2**64 - 1, 3)


def test_epochs_and_seeds_give_other_orders():
    def order(seed, epoch):
        return tuple(UniformPlan(length=100, batch_size=100, seed=seed).batch(epoch, 0).samples.tolist())

    assert order(0, 0) == order(0, 0)
    assert len({order(seed, epoch) for seed in range(4) for epoch in range(4)}) == 16


@given(st.integers(1, 200), st.integers(1, 20), st.integers(1, 200))
def test_a_short_batch_is_split_evenly(world_size, batch_size, count):
    count = min(count, batch_size * world_size)
    parts = [Order(rank=r, world_size=world_size).part(count, batch_size=batch_size) for r in range(world_size)]
    assert [start for start, _ in parts[1:]] == [stop for _, stop in parts[:-1]]
    assert (parts[0][0], parts[-1][1]) == (0, count)
    sizes = [stop - start for start, stop in parts]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= batch_size


def test_a_rank_that_a_short_batch_shapes_nothing_still_takes_the_step():
    plans = [UniformPlan(length=9, batch_size=2, world_size=4, rank=rank) for rank in range(4)]
    assert [plan.steps for plan in plans] == [2] * 4
    assert [len(plan.batch(0, 1).samples) for plan in plans] == [0, 0, 0, 1]
    assert plans[0].empty_parts == 3


@pytest.mark.parametrize(("length", "remainder"), [(8, "short"), (12, "short"), (9, "drop"), (9, "wrap")])
def test_no_part_is_empty_where_each_rank_has_a_sample_in_the_last_batch(length, remainder):
    assert UniformPlan(length=length, batch_size=2, world_size=4, remainder=remainder).empty_parts == 0


@given(st.integers(1, 5000))
def test_world_sizes_are_the_divisors(global_batch):
    assert world_sizes(global_batch) == [n for n in range(1, global_batch + 1) if global_batch % n == 0]


def test_replacements_are_keyed_and_in_a_pass_of_their_own():
    plan = UniformPlan(length=1000, batch_size=8, seed=3)
    got = plan.replacement(4, (1 << 40) + 5, 6)
    assert got == UniformPlan(length=1000, batch_size=2, world_size=4, rank=2, seed=3).replacement(4, (1 << 40) + 5, 6)
    block = twin.philox(twin.hash64(3, 4), np.array([5, 1 << 8, 6, 255 << 8], np.uint32))
    first = int(block[0]) | int(block[1]) << 32
    assert got == (first * 1000 >> 64, 0x8000_0000 | int(block[2]) & 0x7FFF_FFFF)
    others = [plan.replacement(*at) for at in [(5, (1 << 40) + 5, 6), (4, 5, 6), (4, (1 << 40) + 5, 7)]]
    assert got not in others


def test_replacements_are_uniform_over_the_dataset():
    plan = UniformPlan(length=20, batch_size=8)
    counts = np.bincount([plan.replacement(0, position, 0)[0] for position in range(2000)], minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"length": 0}, "length: expected an int from 1 .* got 0; the dataset holds no sample"),
        ({"batch_size": 0}, "batch_size: expected an int from 1 .* got 0"),
        ({"batch_size": True}, "got True"),
        ({"batch_size": 2.0}, "got 2.0"),
        ({"world_size": 0}, "world_size: expected"),
        ({"world_size": 1 << 30}, "batch_size x world_size: expected .* lower batch_size"),
        ({"rank": 2, "world_size": 2}, "rank: expected an int from 0 to 1, got 2"),
        ({"rank": -1}, "rank: expected an int from 0 to 0, got -1"),
        ({"seed": -1}, "seed: expected .* got -1; take it modulo"),
        ({"seed": 2**64}, "seed: expected"),
        ({"shuffle": 1}, "shuffle: expected True or False, got 1"),
        ({"remainder": "pad"}, "expected 'short', 'drop' or 'wrap', got 'pad'"),
        ({"remainder": "drop", "batch_size": 6, "world_size": 2}, "at most the 10 samples .* 6 x 2 ranks = 12; lower"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(change, says):
    with pytest.raises(UsageError, match=says):
        UniformPlan(**{"length": 10, "batch_size": 4, **change})


@pytest.mark.parametrize(("epoch", "step"), [(-1, 0), (0, -1), (0, 3), (True, 0), (0, 1.0)])
def test_a_step_outside_the_epoch_is_refused(epoch, step):
    with pytest.raises(UsageError, match=r"epoch: expected|step: expected"):
        UniformPlan(length=10, batch_size=4).batch(epoch, step)


def test_a_batch_of_256_takes_well_under_a_millisecond():
    plan = UniformPlan(length=1_281_167, batch_size=256)
    times = []
    for step in range(200):
        begin = time.perf_counter()
        plan.batch(0, step)
        times.append(time.perf_counter() - begin)
    assert min(times) < 100e-6
