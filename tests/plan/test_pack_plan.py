"""The plan of packed rows, against slow ones: each sample once, rows that hold theirs, as few as best fit opens."""

from __future__ import annotations

from bisect import bisect_left, insort
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from twin import rng as twin

from headrace.errors import StateError, UsageError
from headrace.plan import State, resume, state_after
from headrace.plan.batching import MOST_TOKENS
from headrace.plan.best_fit import SequencesByLength
from headrace.plan.order import world_sizes
from headrace.plan.packed_plan import PackedPlan

ROW = 64
EXACT = 4096


def plan_of(lengths, row=ROW, batch_size=3, **parameters):
    return PackedPlan(
        sequences=SequencesByLength.of(np.asarray(lengths), row), row=row, batch_size=batch_size, **parameters
    )


def log_normal(count, mean, *, sigma=0.9, seed=0):
    rng = np.random.default_rng(seed)
    return np.maximum(1, rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, count)).astype(np.int32)


def best_fit_decreasing(lengths, row):
    """Rows that are opened where each sequence, the longest first, goes where the least room is left."""
    rooms, opened = [], 0
    for length in sorted((min(max(int(length), 1), row) for length in lengths), reverse=True):
        at = bisect_left(rooms, length)
        room = rooms.pop(at) if at < len(rooms) else row
        opened += room == row
        if room > length:
            insort(rooms, room - length)
    return opened


def epoch_of(plan, epoch=0):
    return [plan.batch(epoch, step) for step in range(plan.steps)]


def rows_of(batch):
    """The samples of each row."""
    at = batch.rows.of(batch.positions)
    return [batch.samples[at == row].tolist() for row in range(batch.rows.count)]


lengths_of_any_kind = st.one_of(
    st.lists(st.integers(0, ROW + 20), min_size=1, max_size=120),
    st.lists(st.sampled_from([1, 5, 20, 33, 64]), min_size=1, max_size=120),
    st.lists(st.integers(ROW // 2 - 2, ROW // 2 + 4), min_size=1, max_size=60),
)


@given(lengths_of_any_kind, st.integers(1, 5), st.booleans(), st.integers(0, 3))
def test_an_epoch_has_every_sample_once_in_rows_that_hold_it(lengths, batch_size, shuffle, epoch):
    plan = plan_of(lengths, batch_size=batch_size, shuffle=shuffle, seed=7)
    batches = epoch_of(plan, epoch)
    samples = np.concatenate([batch.samples for batch in batches])
    assert sorted(samples.tolist()) == list(range(len(lengths)))
    rows = [row for batch in batches for row in rows_of(batch)]
    assert len(rows) == plan.rows
    cut = np.minimum(lengths, ROW)
    assert all(row and cut[row].sum() <= ROW for row in rows)
    positions = np.concatenate([batch.positions for batch in batches])
    assert (np.diff(positions) > 0).all()
    assert not any(batch.passes.any() for batch in batches)
    assert plan.used == pytest.approx(cut.sum() / (plan.rows * ROW))


@given(lengths_of_any_kind)
def test_rows_are_as_many_as_best_fit_decreasing_opens(lengths):
    assert plan_of(lengths).rows == best_fit_decreasing(lengths, ROW)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("row", "mean", "sigma", "count", "least"),
    [
        (2048, 400, 0.9, 20_000, 0.995),
        (2048, 600, 0.6, 20_000, 0.995),
        (4096, 200, 1.2, 20_000, 0.99),
        (512, 20, 0.5, 20_000, 0.995),
        (131_072, 3000, 1.5, 20_000, 0.99),
        (2048, 400, 0.9, 1000, 0.98),
        (2048, 400, 0.9, 100, None),
        (512, 20, 0.5, 100, None),
    ],
)
def test_rows_are_full(row, mean, sigma, count, least):
    lengths = log_normal(count, mean, sigma=sigma)
    plan = plan_of(lengths, row)
    tokens = int(np.minimum(lengths, row).sum())
    slow = best_fit_decreasing(lengths, row)
    if least is None:
        assert plan.rows == slow <= -(-tokens // row) + 1
    else:
        assert plan.rows <= slow * (1 + 1 / 2048)
        assert tokens / (plan.rows * row) == pytest.approx(plan.used)
        assert plan.used >= least


@pytest.mark.long
@pytest.mark.parametrize(("row", "mean"), [(2048, 400), (131_072, 6000)])
def test_an_epoch_of_many_has_each_once_on_all_ranks(row, mean):
    lengths = log_normal(300_000, mean, sigma=1.1)
    plans = [plan_of(lengths, row, batch_size=16, world_size=3, rank=rank, seed=1) for rank in range(3)]
    assert plans[0].rows <= best_fit_decreasing(lengths, row) * (1 + 1 / 2048)
    cut, seen = np.minimum(lengths, row).astype(np.int64), np.zeros(len(lengths), np.int64)
    for plan in plans:
        for batch in epoch_of(plan, 6):
            np.add.at(seen, batch.samples, 1)
            used = np.bincount(batch.rows.of(batch.positions), cut[batch.samples], minlength=batch.rows.count)
            assert used.max() <= row
    assert (seen == 1).all()


def test_nothing_fits_beside_sequences_longer_than_half_a_row():
    plan = plan_of(np.full(500, ROW // 2 + 1))
    assert plan.rows == 500


def test_classes_of_long_rows_leave_less_than_a_two_thousandth():
    row = 131_072
    lengths = np.arange(row + 1)
    order = SequencesByLength.of(lengths, row)
    assert order.sizes[:EXACT].tolist() == list(range(1, EXACT + 1))
    assert order.sizes[-1] == row
    size = np.repeat(order.sizes, order.counts)
    held = lengths[order.samples]
    assert (held <= size).all()
    assert ((size - held)[held > 0] * 2048 < size[held > 0]).all()
    assert len(order.sizes) < 1 << 14


def test_the_longest_row_has_classes_that_two_bytes_number():
    order = SequencesByLength.of(np.array([0, 5, MOST_TOKENS, MOST_TOKENS + 1]), MOST_TOKENS)
    assert order.sizes.tolist() == [1, 5, MOST_TOKENS]
    assert order.counts.tolist() == [1, 1, 2]


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64])
def test_samples_in_order_of_length(dtype):
    lengths = np.random.default_rng(3).integers(0, 50, 3000).astype(dtype)
    order = SequencesByLength.of(lengths, 40)
    assert order.samples.tolist() == np.argsort(np.clip(lengths, 1, 40), kind="stable").tolist()
    assert order.tokens == np.minimum(lengths, 40).sum()
    assert order.digest == SequencesByLength.of(lengths.astype(np.int16), 40).digest
    lengths[7] += 1
    assert order.digest != SequencesByLength.of(lengths, 40).digest


def test_samples_in_order_of_length_over_several_pieces(monkeypatch):
    lengths = np.random.default_rng(3).integers(0, 50, 3000)
    expected = SequencesByLength.of(lengths, 40)
    monkeypatch.setattr("headrace.plan.best_fit._PIECE", 512)
    order = SequencesByLength.of(lengths, 40)
    assert order.samples.tolist() == expected.samples.tolist()
    assert order.digest == expected.digest


def test_the_order_is_that_of_keyed_permutations():
    """Rows by a permutation of their numbers, and each length's samples by one of its own."""
    lengths = log_normal(200, 20)
    seed, epoch = 11, 4
    plain, drawn = (plan_of(lengths, batch_size=1, shuffle=shuffle, seed=seed) for shuffle in (False, True))
    key = twin.hash64(seed, epoch)
    unshuffled = [rows_of(batch)[0] for batch in epoch_of(plain, epoch)]
    sizes = np.clip(lengths, 1, ROW)
    classes = {size: number for number, size in enumerate(np.unique(sizes).tolist())}
    for step, batch in enumerate(epoch_of(drawn, epoch)):
        expected = []
        for sample in unshuffled[twin.permute(drawn.rows, twin.hash64(key, 0), step)]:
            members = np.flatnonzero(sizes == sizes[sample]).tolist()
            stream = twin.hash64(key, 1 + classes[int(sizes[sample])])
            expected.append(members[twin.permute(len(members), stream, members.index(sample))])
        assert rows_of(batch) == [expected]


def test_rows_and_their_samples_are_drawn_anew_each_epoch():
    plan = plan_of(log_normal(6000, 20), batch_size=8)
    first, second = ([row for batch in epoch_of(plan, epoch) for row in rows_of(batch)] for epoch in (0, 1))
    assert len(first) == len(second)
    together = [{pair for row in rows for pair in combinations(sorted(row), 2)} for rows in (first, second)]
    assert len(together[0] & together[1]) < len(together[0]) / 10
    assert sum(row == other for row, other in zip(first, second, strict=True)) < len(first) / 20
    assert plan.batch(0, 3).samples.tolist() == plan.batch(0, 3).samples.tolist()


def test_where_a_sample_comes_is_uniform():
    """Steps at which one sample comes, over many epochs."""
    plan = plan_of(np.full(40, 8), batch_size=1)
    steps = [next(step for step in range(5) if 17 in plan.batch(epoch, step).samples) for epoch in range(600)]
    assert stats.chisquare(np.bincount(steps, minlength=5)).pvalue > 1e-3


@given(lengths_of_any_kind, st.integers(1, 12), st.sampled_from(["short", "drop", "wrap"]), st.booleans())
def test_the_parts_of_all_ranks_are_the_batch_of_one(lengths, global_batch, remainder, shuffle):
    def make(world_size, rank):
        batch_size = global_batch // world_size
        given = {"shuffle": shuffle, "seed": 3, "remainder": remainder, "world_size": world_size, "rank": rank}
        return plan_of(lengths, batch_size=batch_size, **given)

    try:
        whole = make(1, 0)
    except UsageError:
        assert remainder == "drop"
        assert best_fit_decreasing(lengths, ROW) < global_batch
        return
    for world_size in world_sizes(global_batch):
        plans = [make(world_size, rank) for rank in range(world_size)]
        assert {plan.steps for plan in plans} == {whole.steps}
        for step in range(whole.steps):
            expected, parts = whole.batch(2, step), [plan.batch(2, step) for plan in plans]
            for name in ("samples", "passes", "positions"):
                joined = np.concatenate([getattr(part, name) for part in parts])
                assert joined.tolist() == getattr(expected, name).tolist()
            assert [row for part in parts for row in rows_of(part)] == rows_of(expected)
        empty = sum(plan.batch(2, step).rows.count == 0 for plan in plans for step in range(plan.steps))
        assert empty == plans[0].empty_parts


@given(lengths_of_any_kind, st.integers(1, 12), st.sampled_from(["short", "drop", "wrap"]), st.integers(0, 5))
def test_what_is_left_out_and_repeated_is_counted(lengths, batch_size, remainder, epoch):
    try:
        plan = plan_of(lengths, batch_size=batch_size, remainder=remainder)
    except UsageError:
        return
    batches = epoch_of(plan, epoch)
    samples = np.concatenate([batch.samples for batch in batches])
    passes = np.concatenate([batch.passes for batch in batches])
    assert len(set(samples.tolist())) == len(lengths) - plan.left_out
    assert len(samples) == len(lengths) - plan.left_out + plan.repeated
    assert len(set(zip(samples.tolist(), passes.tolist(), strict=True))) == len(samples)
    if remainder != "short":
        assert {batch.rows.count for batch in batches} == {batch_size}


def test_drop_leaves_out_the_emptiest_rows():
    lengths = [64] * 7 + [1]
    plan = plan_of(lengths, batch_size=7, remainder="drop")
    assert plan.left_out == 1
    assert all(7 not in plan.batch(epoch, 0).samples for epoch in range(20))


def test_a_replacement_is_of_the_same_length_or_else_no_longer():
    lengths = log_normal(400, 20)
    plan = plan_of(lengths, batch_size=4)
    seen = set()
    for batch in epoch_of(plan, 5)[:3]:
        for sample, position in zip(batch.samples.tolist(), batch.positions.tolist(), strict=True):
            for attempt in range(8):
                other, pass_ = plan.replacement(5, position, attempt)
                assert min(lengths[other], ROW) == min(lengths[sample], ROW)
                assert pass_ >= 1 << 31
                seen.add(other == sample)
            others = {plan.replacement(5, position, attempt)[0] for attempt in range(8, 40)}
            assert (lengths[list(others)] <= max(lengths[sample], ROW)).all()
            assert (np.minimum(lengths[list(others)], ROW) <= min(lengths[sample], ROW)).all()
            assert len(others) > 1 or lengths[sample] == lengths.min()
    assert seen == {True, False}


def test_a_replacement_is_the_same_at_every_world_size():
    lengths = log_normal(400, 20)
    whole = plan_of(lengths, batch_size=4)
    part = plan_of(lengths, batch_size=2, world_size=2, rank=1)
    for position in part.batch(1, 2).positions.tolist():
        assert part.replacement(1, position, 0) == whole.replacement(1, position, 0)


def test_a_state_resumes_at_other_world_sizes_only_in_the_same_rows():
    lengths = log_normal(400, 20)
    plan = plan_of(lengths, batch_size=4, seed=9)
    state = state_after(plan, epoch=3, steps=5, dataset="d", core="c")
    state = State.from_dict(state.to_dict())
    two = plan_of(lengths, batch_size=2, world_size=2, rank=1, seed=9)
    found = resume(state, two, dataset="d", core="c")
    assert (found.epoch, found.step, found.warning) == (3, 5, None)
    assert len(state.grouping) < 100
    changed = lengths.copy()
    changed[3] += 1
    for other in (plan_of(lengths, 65, batch_size=4, seed=9), plan_of(changed, batch_size=4, seed=9)):
        with pytest.raises(StateError, match=r"packed in \d+ rows of 6\d tokens .* pack="):
            resume(state, other, dataset="d", core="c")


def test_bad_arguments():
    with pytest.raises(UsageError, match="batch_size: expected an int from 1"):
        plan_of([1, 2], batch_size=0)
    with pytest.raises(UsageError, match=r"at most the 1 rows of 64 tokens that the dataset fills, got 2 x 1 ranks"):
        plan_of([1, 2], batch_size=2, remainder="drop")
    plan = plan_of([1, 2])
    with pytest.raises(UsageError, match="step: expected an int from 0 to 0"):
        plan.batch(0, 1)
