"""The plan of shapes, against a slow one of lists: each sample once, one shape, full batches within their capacity."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from test_plan_members import coded
from twin import rng as twin

from headrace.errors import UsageError
from headrace.plan import ShapedPlan
from headrace.plan.batch_cutting import Capacity
from headrace.plan.order import world_sizes
from headrace.plan.step_views import StepViews


def views(scales):
    """Tables that tell their scale."""
    return StepViews(tables=tuple(np.full((1, 10), scale) for scale in range(scales)), output=(1, 1), sizes=None)


def plan_of(codes, buckets, scales, capacity, **parameters):
    given = {"joined": True, "grouping": "made up"} | parameters
    return ShapedPlan(members=coded(codes, buckets), capacity=capacity, views=views(scales), **given)


# --- a slow plan ---


def slow_cells(codes, buckets, scales):
    """(bucket, scale or None) of every slot, by bucket."""
    slots, turn = [], 0
    for bucket in range(buckets):
        count = int((codes == bucket).sum())
        share = count // scales
        cells = [(bucket, scale) for scale in range(scales) for _ in range(share)]
        cells += [(bucket, None)] * (count - len(cells))
        if count:
            slots.append(cells if turn % 2 == 0 else cells[::-1])
            turn += 1
    return slots


def slow_cut(slots, room, multiple):
    """Sizes of the batches of one chain: (samples, whole size), one slot after another."""
    cells = list(dict.fromkeys(slots))
    batches = []
    while slots:
        first = last = cells.index(slots[0])
        while True:
            size = room(cells[first : last + 1])
            before = sum(cells.index(slot) < last for slot in slots)
            through = sum(cells.index(slot) <= last for slot in slots)
            joins = last > first
            if joins and size == 0:
                taken, whole = before, -(-before // multiple) * multiple
            elif joins and before >= size:
                taken = whole = before // multiple * multiple
            elif through >= size:
                taken = whole = size
            elif last + 1 < len(cells):
                last += 1
                continue
            else:
                taken, whole = through, -(-through // multiple) * multiple
            break
        batches.append((slots[:taken], whole))
        slots = slots[taken:]
    return batches


def fixed(samples):
    return Capacity(samples, samples)


def slow_room(capacity, scales):
    heights, widths = capacity.bounds or (None, None)

    def room(cells):
        if capacity.bounds is None:
            return capacity.total
        chosen = {scale for _, each in cells for scale in (range(scales) if each is None else [each])}
        cost = max(
            max(int(heights[bucket, scale]) for bucket, _ in cells)
            * max(int(widths[bucket, scale]) for bucket, _ in cells)
            for scale in chosen
        )
        return capacity.total // cost // capacity.multiple * capacity.multiple

    return room


def slow_epoch(codes, buckets, scales, capacity, *, joined, shuffle, seed, remainder, epoch):
    """Every step's [(sample, pass)] and scale."""
    key = twin.hash64(seed, epoch)
    chains = slow_cells(codes, buckets, scales)
    chains = [[slot for chain in chains for slot in chain]] if joined else chains
    room, multiple = slow_room(capacity, scales), capacity.multiple
    cut = [batch for chain in chains for batch in slow_cut(chain, room, multiple)]
    members = [np.flatnonzero(codes == bucket).tolist() for bucket in range(buckets)]
    used, made = Counter(), []
    for slots, whole in cut:
        short = whole - len(slots)
        left_out = len(slots) % multiple if remainder == "drop" and short else 0
        places = []
        for bucket, _ in slots + [slots[-1]] * (short if remainder == "wrap" else 0):
            places.append((bucket, used[bucket]))
            used[bucket] += 1
        kept = len(places) - left_out
        if kept:
            chosen = [slow_sample(members[bucket], bucket, place, key, shuffle) for bucket, place in places[:kept]]
            made.append((slots[:kept], chosen))
    steps = len(made)
    order = [twin.permute(steps, twin.hash64(key, 0), step) if shuffle else step for step in range(steps)]
    turn = twin.hash64(twin.hash64(key, 1 << 32), steps) * scales >> 64
    turn = turn if capacity.bounds is None or same_bounds(capacity) else 0
    return [(made[at][1], (slow_scale(made[at][0], at, key, scales) + turn) % scales) for at in order]


def same_bounds(capacity):
    return all(len(set(row)) == 1 for bound in capacity.bounds for row in bound.tolist())


def slow_sample(members, bucket, place, key, shuffle):
    again, place = divmod(place, len(members))
    if shuffle:
        place = twin.permute(len(members), twin.hash64(key, 1 + bucket), place)
    return members[place], again


def slow_scale(slots, number, key, scales):
    drawn = twin.hash64(twin.hash64(key, 1 << 32), number)
    scale = slots[drawn * len(slots) >> 64][1]
    return scale if scale is not None else twin.hash64(drawn, 0) * scales >> 64


@st.composite
def cases(draw):
    buckets, scales = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    codes = np.array(draw(st.lists(st.integers(0, buckets - 1), min_size=1, max_size=70)))
    if draw(st.booleans()):
        capacity = fixed(draw(st.integers(1, 12)))
    else:
        bounds = [draw(st.lists(st.integers(1, 6), min_size=buckets * scales, max_size=buckets * scales)) for _ in "hw"]
        heights, widths = (np.array(bound).reshape(buckets, scales) for bound in bounds)
        multiple = draw(st.sampled_from([1, 2, 4]))
        least = int((heights * widths).max()) * multiple
        capacity = Capacity(draw(st.integers(least, 12 * least)), multiple, (heights, widths))
    parameters = {
        "joined": draw(st.booleans()),
        "shuffle": draw(st.booleans()),
        "seed": draw(st.integers(0, 2**64 - 1)),
        "remainder": draw(st.sampled_from(["short", "wrap", "drop"])),
    }
    return (codes, buckets, scales, capacity), parameters


def made(case, parameters, **place):
    """None where "drop" leaves nothing."""
    try:
        return plan_of(*case, **parameters, **place)
    except UsageError as error:
        if parameters["remainder"] == "drop" and "leaves nothing" in str(error):
            return None
        raise


@given(cases(), st.integers(0, 2**40))
def test_equals_an_independent_slow_implementation(drawn, epoch):
    case, parameters = drawn
    expected = slow_epoch(*case, **parameters, epoch=epoch)
    plan = made(case, parameters)
    if plan is None:
        assert not expected
        return
    batches = [plan.batch(epoch, step) for step in range(plan.steps)]
    got = [
        (list(zip(batch.samples.tolist(), batch.passes.tolist(), strict=True)), batch.view.ops[0, 0])
        for batch in batches
    ]
    assert got == expected


@given(cases(), st.integers(0, 5))
def test_an_epoch_holds_every_sample_once_and_counts_the_others(drawn, epoch):
    case, parameters = drawn
    plan = made(case, parameters)
    if plan is None:
        return
    batches = [plan.batch(epoch, step) for step in range(plan.steps)]
    samples = np.concatenate([batch.samples for batch in batches])
    passes = np.concatenate([batch.passes for batch in batches])
    positions = np.concatenate([batch.positions for batch in batches])
    assert len(samples) == plan.length - plan.left_out + plan.repeated
    assert len(set(zip(samples.tolist(), passes.tolist(), strict=True))) == len(samples)
    assert len(set(positions.tolist())) == len(positions)
    assert len(set(samples.tolist())) == plan.length - plan.left_out
    assert plan.steps == plan_of(*case, **(parameters | {"seed": 1})).steps


@given(cases(), st.integers(0, 5))
def test_no_batch_costs_more_than_the_budget_and_few_are_not_a_multiple(drawn, epoch):
    case, parameters = drawn
    codes, _, _, capacity = case
    plan = made(case, parameters)
    if plan is None or capacity.bounds is None:
        return
    odd = 0
    for step in range(plan.steps):
        batch = plan.batch(epoch, step)
        scale = int(batch.view.ops[0, 0])
        cost = np.prod([bound[codes[batch.samples], scale].max() for bound in capacity.bounds])
        assert len(batch.samples) * cost <= capacity.total
        odd += len(batch.samples) % capacity.multiple > 0
    if parameters["remainder"] != "short":
        assert odd == 0
    elif not parameters["joined"]:
        assert odd <= len(set(codes.tolist()))


@given(cases())
def test_batches_of_a_number_are_full_but_for_the_last_of_each_chain(drawn):
    (codes, buckets, scales, _), parameters = drawn
    plan = plan_of(codes, buckets, scales, fixed(6), **(parameters | {"remainder": "short"}))
    sizes = [len(plan.batch(0, step).samples) for step in range(plan.steps)]
    chains = [len(codes)] if parameters["joined"] else np.bincount(codes).tolist()
    assert sorted(sizes) == sorted(min(6, count - first) for count in chains for first in range(0, count, 6))


@given(cases(), st.integers(0, 3))
def test_ranks_joined_are_the_batch_of_world_size_one(drawn, epoch):
    case, parameters = drawn
    alone = made(case, parameters)
    if alone is None:
        return
    for world_size in world_sizes(case[3].multiple):
        plans = [made(case, parameters, world_size=world_size, rank=rank) for rank in range(world_size)]
        assert (
            len(
                {(plan.steps, plan.global_batch, plan.left_out, plan.repeated) for plan in plans}
                | {(alone.steps, alone.global_batch, alone.left_out, alone.repeated)}
            )
            == 1
        )
        empty = 0
        for step in range(alone.steps):
            parts = [plan.batch(epoch, step) for plan in plans]
            whole = alone.batch(epoch, step)
            for name in ("samples", "passes", "positions"):
                assert np.array_equal(np.concatenate([getattr(part, name) for part in parts]), getattr(whole, name))
            assert {part.view.ops[0, 0] for part in parts} == {whole.view.ops[0, 0]}
            counts = {len(part.samples) for part in parts}
            assert max(counts) - min(counts) <= (len(whole.samples) % world_size > 0)
            empty += sum(len(part.samples) == 0 for part in parts)
        assert empty == plans[0].empty_parts


@given(cases(), st.integers(0, 3), st.integers(0, 5))
def test_a_replacement_is_of_the_same_bucket_on_every_rank(drawn, epoch, attempt):
    case, parameters = drawn
    alone = made(case, parameters)
    if alone is None:
        return
    world_size = case[3].multiple
    ranks = [made(case, parameters, world_size=world_size, rank=rank) for rank in (0, world_size - 1)]
    for step in range(alone.steps):
        batch = alone.batch(epoch, step)
        for sample, position in zip(batch.samples, batch.positions.tolist(), strict=True):
            drawn_ = {plan.replacement(epoch, position, attempt) for plan in (alone, *ranks)}
            assert len(drawn_) == 1
            other, pass_ = drawn_.pop()
            assert case[0][other] == case[0][sample]
            assert pass_ >= 1 << 31


def test_a_bucket_of_bad_samples_alone_gets_replacements_from_the_others():
    """As one of a rare size may be. Eight are drawn from it before."""
    plan = plan_of(np.array([1] + [0] * 30), 2, 1, fixed(4), shuffle=False)
    batches = [plan.batch(0, step) for step in range(plan.steps)]
    (position,) = (int(batch.positions[row]) for batch in batches for row in np.flatnonzero(batch.samples == 0))
    drawn = [plan.replacement(0, position, attempt)[0] for attempt in range(40)]
    assert set(drawn[:8]) == {0}
    assert len(set(drawn[8:])) > 15


# --- draws ---

BOUNDS = np.array([[4, 9, 16]] * 3), np.ones((3, 3), np.int64)
CODES = np.repeat([0, 1, 2], [4, 29, 60])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("capacity", [fixed(8), Capacity(96, 2, BOUNDS)], ids=["a number", "a budget"])
@pytest.mark.parametrize("joined", [pytest.param(True, marks=pytest.mark.long), False])
@pytest.mark.long
def test_every_sample_gets_every_scale_as_often_as_in_independent_draws(capacity, joined):
    """Also those of a bucket that has hardly more samples than there are scales. Epochs are independent, samples of one
    are not: one of each bucket is followed, beside the counts of all."""
    plan = plan_of(CODES, 3, 3, capacity, joined=joined, seed=3)
    epochs, followed = 600, (2, 20, 70)
    counts, all_counts = np.zeros((3, 3)), np.zeros(3)
    for epoch in range(epochs):
        for step in range(plan.steps):
            batch = plan.batch(epoch, step)
            scale = int(batch.view.ops[0, 0])
            all_counts[scale] += len(batch.samples)
            for row in np.flatnonzero(np.isin(followed, batch.samples)):
                counts[row, scale] += 1
    assert [stats.chisquare(row).pvalue > 1e-3 for row in counts] == [True] * 3, counts
    # Steps draw one scale for several samples, so shares may differ by what 600 x steps independent steps would.
    error = (2 / 9 / (epochs * plan.steps)) ** 0.5
    assert np.abs(all_counts / all_counts.sum() - 1 / 3).max() < 3 * error


def test_which_samples_share_a_batch_is_drawn_anew():
    plan = plan_of(CODES, 3, 1, fixed(8), seed=3)
    counts = Counter()
    for epoch in range(1200):
        batch = next(batch for step in range(plan.steps) if 40 in (batch := plan.batch(epoch, step).samples))
        counts.update(sample for sample in batch.tolist() if CODES[sample] == 2 and sample != 40)
    assert len(counts) == 59
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


@pytest.mark.long
def test_every_batch_is_equally_likely_at_every_step():
    plan = plan_of(np.repeat([0, 1], [30, 10]), 2, 1, fixed(10))
    for step in range(4):
        first = sum(int(plan.batch(epoch, step).samples[0] >= 30) for epoch in range(2000))
        assert stats.binomtest(first, 2000, 0.25).pvalue > 1e-3


def test_without_shuffle_batches_come_bucket_by_bucket():
    plan = plan_of(np.array([0, 1, 0, 1, 1, 0]), 2, 1, fixed(2), shuffle=False)
    assert [plan.batch(5, step).samples.tolist() for step in range(3)] == [[0, 2], [5, 1], [3, 4]]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"remainder": "pad"}, "expected 'short', 'drop' or 'wrap', got 'pad'"),
        ({"seed": -1}, "seed: expected"),
        ({"rank": 1}, "rank: expected"),
        (
            {"capacity": fixed(4), "remainder": "drop", "joined": False},
            "leaves nothing: .* at most the 3 samples of the largest bucket, got 4 x 1 ranks = 4; lower batch_size",
        ),
    ],
)
def test_a_wrong_argument_is_named(change, says):
    given = {"codes": np.array([0, 0, 0, 1]), "buckets": 2, "scales": 1, "capacity": fixed(2)} | change
    with pytest.raises(UsageError, match=says):
        plan_of(**given)


@pytest.mark.parametrize(("epoch", "step"), [(-1, 0), (0, -1), (0, 2), (True, 0), (0, 1.0)])
def test_a_step_outside_the_epoch_is_refused(epoch, step):
    with pytest.raises(UsageError, match=r"epoch: expected|step: expected"):
        plan_of(np.array([0, 0, 0, 1]), 2, 1, fixed(2)).batch(epoch, step)
