"""Windowed order: its arithmetic against lists, what a plan makes of it, and when a block comes next."""

from __future__ import annotations

import dataclasses
import json
import tarfile
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from loader_data import add_member
from twin import rng as twin

import headrace as hr
from headrace.errors import StateError, UsageError
from headrace.plan import (
    Mixture,
    Order,
    Sampling,
    SourceBatches,
    SourceSamples,
    State,
    UniformPlan,
    Windowed,
    WindowedEpoch,
    WindowShape,
    plan_of,
    resume,
    state_after,
)
from headrace.views import compile_view

REMAINDERS = ("short", "drop", "wrap")


def listed_windows(count, block, most, key):
    """Each window as (its blocks in turn, its samples in order), by lists alone."""
    blocks = [list(range(first, min(first + block, count))) for first in range(0, count, block)]
    turns = [twin.permute(len(blocks), twin.hash64(key, 0), turn) for turn in range(len(blocks))]
    windows = []
    for number, chosen in enumerate(np.array_split(turns, -(-len(blocks) // most))):
        members = [sample for at in chosen for sample in blocks[at]]
        own = twin.hash64(twin.hash64(key, 1), number)
        windows.append((chosen.tolist(), [members[twin.permute(len(members), own, i)] for i in range(len(members))]))
    return windows


@st.composite
def epochs(draw, most=150):
    count = draw(st.integers(1, most))
    shape = WindowShape(block=draw(st.integers(1, count + 2)), blocks=draw(st.integers(1, 9)))
    return WindowedEpoch(count=count, shape=shape, key=draw(st.integers(0, 2**64 - 1)))


@given(epochs())
def test_an_epoch_is_that_of_lists(epoch):
    windows = listed_windows(epoch.count, epoch.shape.block, epoch.shape.blocks, epoch.key)
    order = [sample for _, samples in windows for sample in samples]
    everywhere = np.arange(epoch.count)
    assert epoch.samples_at(everywhere).tolist() == order
    assert [int(epoch.samples_at(np.array([position]))[0]) for position in everywhere] == order
    assert epoch.samples_at(everywhere[:0]).tolist() == []
    assert epoch.positions_of(np.array(order)).tolist() == everywhere.tolist()
    assert (epoch.blocks, epoch.windows) == (-(-epoch.count // epoch.shape.block), len(windows))
    sizes = [len(samples) for _, samples in windows]
    assert epoch.window_at(everywhere).tolist() == np.repeat(np.arange(len(windows)), sizes).tolist()
    starts, stops = epoch.bounds(np.arange(len(windows)))
    assert (stops.tolist(), (stops - starts).tolist()) == (np.cumsum(sizes).tolist(), sizes)
    for number, (blocks, samples) in enumerate(windows):
        assert epoch.blocks_of(number).tolist() == blocks
        assert (epoch.window_of(np.array(blocks)) == number).all()
        assert set(epoch.shape.block_of(np.array(samples))) == set(blocks)
    spans = [epoch.shape.samples_of(number, count=epoch.count) for number in range(epoch.blocks)]
    assert [start for start, _ in spans] + [epoch.count] == [0] + [stop for _, stop in spans]


@given(st.integers(1, 2**62), st.integers(1, 2**31), st.integers(1, 2**20), st.integers(0, 2**64 - 1), st.data())
def test_an_epoch_of_any_length_is_found_by_arithmetic(count, block, most, key, data):
    epoch = WindowedEpoch(count=count, shape=WindowShape(block=block, blocks=most), key=key)
    positions = np.array([*data.draw(st.lists(st.integers(0, count - 1), max_size=6)), count - 1])
    samples = epoch.samples_at(positions)
    assert ((samples >= 0) & (samples < count)).all()
    assert np.array_equal(epoch.positions_of(samples), positions)
    windows = epoch.window_at(positions)
    assert np.array_equal(epoch.window_of(epoch.shape.block_of(samples)), windows)
    starts, stops = epoch.bounds(windows)
    assert ((starts <= positions) & (positions < stops)).all()


@given(epochs(), st.lists(st.integers(0, 10**6), max_size=20))
def test_positions_may_come_in_any_order_and_number(epoch, places):
    places = np.array(places, np.int64) % epoch.count
    order = epoch.samples_at(np.arange(epoch.count))
    assert np.array_equal(epoch.samples_at(places), order[places])


@st.composite
def plans(draw, remainders=REMAINDERS):
    epoch = draw(epochs(most=90))
    remainder = draw(st.sampled_from(remainders))
    most = epoch.count if remainder == "drop" else 2 * epoch.count + 3
    return UniformPlan(
        length=epoch.count,
        batch_size=draw(st.integers(1, most)),
        seed=draw(st.integers(0, 99)),
        remainder=remainder,
        window=draw(st.sampled_from([epoch.shape, None])),
    )


def samples_of(plan, epoch):
    return [plan.batch(epoch, step).samples.tolist() for step in range(plan.steps)]


@given(plans(), st.integers(0, 3))
def test_an_epoch_has_each_sample_once_and_ranks_join_to_it(plan, epoch):
    batches = samples_of(plan, epoch)
    counts = Counter(sample for batch in batches for sample in batch)
    assert sum(counts.values()) == plan.length - plan.left_out + plan.repeated
    if plan.remainder == "short":
        assert sorted(counts.elements()) == list(range(plan.length))
    if plan.remainder == "drop":
        assert set(counts.values()) == {1}
    if plan.global_batch % 2 == 0:
        halves = [
            dataclasses.replace(plan, batch_size=plan.batch_size // 2, world_size=2, rank=rank) for rank in range(2)
        ]
        parts = zip(*(samples_of(half, epoch) for half in halves), strict=True)
        assert [left + right for left, right in parts] == batches


@given(plans(), st.integers(0, 2), st.data())
def test_next_use_is_what_two_epochs_of_batches_say(plan, epoch, data):
    step = data.draw(st.integers(0, plan.steps - 1))
    ahead = [*samples_of(plan, epoch), *samples_of(plan, epoch + 1)]
    samples = np.arange(plan.length)
    expected = [
        next((at for at in range(step, len(ahead)) if sample in ahead[at]), 2 * plan.steps) for sample in samples
    ]
    assert plan.next_use(samples, epoch=epoch, step=step).tolist() == expected


@given(plans(), st.integers(0, 2), st.data())
def test_a_block_is_in_use_while_its_window_lasts(plan, epoch, data):
    plan = dataclasses.replace(plan, window=plan.window or WindowShape(block=7, blocks=2))
    step = data.draw(st.integers(0, plan.steps - 1))
    size, ahead = plan.global_batch, []
    for number in (epoch, epoch + 1):
        windows = plan.windows(number).window_at(np.arange(plan.length))
        whole = np.resize(windows, plan.steps * size) if plan.remainder == "wrap" else windows[: plan.steps * size]
        ahead += [set(whole[at * size : (at + 1) * size].tolist()) for at in range(plan.steps)]
    blocks = np.arange(plan.windows(epoch).blocks)
    expected = []
    for block in blocks:
        here, later = (int(plan.windows(number).window_of(np.array([block]))[0]) for number in (epoch, epoch + 1))
        found = [at for at in range(step, plan.steps) if here in ahead[at]]
        found += [at for at in range(plan.steps, 2 * plan.steps) if later in ahead[at]]
        expected.append(min(found, default=2 * plan.steps))
    assert plan.next_use_of_blocks(blocks, epoch=epoch, step=step).tolist() == expected


def test_without_shuffle_the_next_use_follows_storage():
    plan = UniformPlan(length=10, batch_size=4, shuffle=False)
    assert plan.next_use(np.arange(10), epoch=0, step=1).tolist() == [3] * 4 + [1] * 4 + [2] * 2


def test_a_replacement_is_of_its_own_window_and_later_of_any():
    plan = UniformPlan(length=1000, batch_size=10, window=WindowShape(block=7, blocks=3), remainder="wrap")
    windows = plan.windows(4)
    for position in (0, 500, 999, 1003):
        own = windows.window_at(np.array([position % 1000]))
        first = np.array([plan.replacement(4, position, attempt)[0] for attempt in range(8)])
        assert (windows.window_of(first // 7) == own).all()
        assert len(set(first)) > 1
    far = [plan.replacement(4, 0, attempt)[0] for attempt in range(8, 60)]
    assert len(set(windows.window_of(np.array(far) // 7))) > 5


SAVED = {"dataset": "sha256:0123", "core": "libjpeg-turbo 2.1.5"}


def test_a_state_resumes_only_in_windows_of_the_same_sizes():
    shape = WindowShape(block=7, blocks=3)
    plan = UniformPlan(length=100, batch_size=8, window=shape)
    state = State.from_dict(json.loads(json.dumps(state_after(plan, epoch=2, steps=5, **SAVED).to_dict())))
    assert state.grouping == "order Windowed(block_samples=7, window_blocks=3)"
    after = dataclasses.replace(plan, batch_size=4, world_size=2, rank=1)
    assert resume(state, after, **SAVED).step == 5
    for other in (None, WindowShape(block=8, blocks=3), WindowShape(block=7, blocks=4)):
        here = "batch_size alone" if other is None else str(other)
        with pytest.raises(StateError) as raised:
            resume(state, dataclasses.replace(plan, window=other), **SAVED)
        text = str(raised.value)
        assert f"expected batches by {here!r}" in text
        assert "got 'order Windowed(block_samples=7, window_blocks=3)' in the state; pass the order=" in text


def test_a_state_from_before_windows_goes_on_in_the_global_order():
    saved = {
        "version": 2, "plan": 2, "rng": 1, "dataset": "sha256:0123", "length": 100, "seed": 0, "shuffle": True,
        "remainder": "short", "grouping": "", "global_batch": 8, "epoch": 1, "samples": 16, "core": SAVED["core"],
    }  # fmt: skip
    plan = UniformPlan(length=100, batch_size=8)
    assert resume(State.from_dict(saved), plan, **SAVED).step == 2


def test_mixed_batches_take_each_source_by_its_own_order():
    plan = UniformPlan(length=60, batch_size=4, seed=3, window=WindowShape(block=5, blocks=3))
    mixture = Mixture((3, 2), seed=1)
    source = SourceSamples(plan, 25, mixture, 0)  # 100 positions an epoch: 60 of the source
    batches = [source.batch(0, step) for step in range(25)]
    order = np.concatenate([batch.samples for batch in batches])
    assert np.array_equal(order, plan.windows(0).samples_at(np.arange(60)))
    position = int(batches[7].positions[0])
    near, _ = source.replacement(0, position, 0)
    assert plan.windows(0).window_of(np.array([near // 5])) == plan.windows(0).window_at(np.array([position]))
    taken = {sample: step for step, batch in enumerate(batches) for sample in batch.samples.tolist() if step >= 7}
    samples = np.array(list(taken))
    found = source.next_use(samples, epoch=0, step=7)
    assert (abs(found - list(taken.values())) <= 1).all(), "a few positions from an even spread are a step at most"
    again = source.next_use(np.array([s for s in range(60) if s not in taken]), epoch=0, step=7)
    assert (again >= 24).all()
    blocks = source.next_use_of_blocks(np.arange(12), epoch=0, step=7)
    assert (blocks <= source.next_use(np.arange(12) * 5, epoch=0, step=7) + 1).all()


def test_a_source_of_whole_batches_counts_its_own():
    plan = UniformPlan(length=60, batch_size=4, seed=3, window=WindowShape(block=5, blocks=3))
    source = SourceBatches(plan, 100)
    ahead = [source.batch(0, step).samples.tolist() for step in range(18, 60)]
    found = source.next_use(np.arange(60), epoch=0, step=18)
    assert found.tolist() == [18 + next(i for i, b in enumerate(ahead) if s in b) for s in range(60)]
    assert (source.next_use_of_blocks(np.arange(12), epoch=0, step=18) <= found.reshape(12, 5).min(axis=1)).all()


def planned(dataset, **given):
    windowed = Windowed(block_samples=5, window_blocks=2)
    given = {"batch_size": 4, "windowed": windowed, "sampling": Sampling()} | given
    order = Order(shuffle=given.pop("shuffle", True))
    nothing = {"buckets": None, "program": compile_view(None), "images": None, "texts": [], "pack": None}
    return plan_of(dataset, order, **(nothing | given))


@pytest.fixture(scope="module")
def labelled():
    return hr.open({"label": [0] * 45 + [1] * 5})


def test_repeats_and_factors_are_drawn_in_windows(labelled):
    repeated = planned(labelled, sampling=Sampling(repeats=2))
    order = np.concatenate(samples_of(repeated, 0))
    assert np.array_equal(np.unique(order), np.sort(repeated.shuffled(np.arange(25), count=50, epoch=0)))
    rare = planned(labelled, sampling=Sampling(balanced=hr.RepeatFactor(0.4)))
    counts = Counter(sample for batch in samples_of(rare, 0) for sample in batch)
    assert set(range(50)) == set(counts)
    assert all(counts[sample] >= 2 for sample in range(45, 50))
    turns = rare.shuffled(np.arange(10), count=rare.length, epoch=0)  # a window of draws is two blocks of five
    assert len(set(turns // 5)) <= 3
    with pytest.raises(UsageError, match="next_use: expected samples that come once"):
        rare.next_use(np.arange(3), epoch=0, step=0)
    with pytest.raises(UsageError, match=r"windows: expected order='windowed' and no draws, got '.*repeat factors"):
        rare.windows(0)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"shuffle": False}, "order: expected shuffle=True with a windowed order, got shuffle=False"),
        (
            {"buckets": hr.Buckets("length", source="label")},
            "order: expected batches cut from a windowed order .*, got buckets=",
        ),
        ({"batch_size": hr.Budget(pixels=100)}, "got a Budget as batch_size="),
        ({"pack": hr.SequencePacking(8)}, "got pack="),
        ({"sampling": Sampling(weights=[1.0] * 50)}, "order: expected samples that come in turn .*, got weights="),
        ({"sampling": Sampling(balanced="label")}, "got balanced=, which draws each from the whole dataset; leave one"),
        ({"windowed": Windowed(block_bytes=100)}, "block_bytes: expected a dataset that holds the lengths"),
    ],
)
def test_what_does_not_go_together_is_refused(labelled, given, says):
    with pytest.raises(UsageError, match=says):
        planned(labelled, **given)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"block_samples": 3, "block_bytes": 100},
            "expected block_samples or block_bytes, got 3 and 100; leave one out",
        ),
        ({"block_samples": 0}, "block_samples: expected an int from 1"),
        ({"block_bytes": True}, "block_bytes: expected an int from 1"),
        ({"window_blocks": 2.0}, "window_blocks: expected an int from 1"),
    ],
)
def test_sizes_that_are_none_are_refused(given, says):
    with pytest.raises(UsageError, match=says):
        Windowed(**given)


def test_an_order_that_is_none_is_refused(labelled):
    with pytest.raises(UsageError, match=r"order: expected 'global', 'windowed' or hr.Windowed\(…\), got 'random'"):
        hr.Loader(labelled, batch_size=4, order="random", shuffle=True, output="numpy")


def test_a_block_has_as_many_samples_as_its_bytes_hold(tmp_path, labelled):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(101):
            add_member(tar, f"{number:03}.bin", bytes(1000 + 10 * number))
    data = hr.open(tmp_path / "a.tar")  # 1,500 bytes in the mean
    assert Windowed(block_bytes=15_100).resolve(data) == WindowShape(block=10, blocks=128)
    assert Windowed(block_bytes=1).resolve(data).block == 1
    assert Windowed().resolve(data).block == (8 << 20) // 1500
    assert Windowed(window_blocks=9).resolve(data.select(range(3))) == WindowShape(block=(8 << 20) // 1500, blocks=9)
    assert Windowed().resolve(labelled).block == 64
    loader = hr.Loader(data, {"bin": hr.Raw()}, batch_size=8, shuffle=True, order=hr.Windowed(block_bytes=15_100))
    keys = hr.Loader(data, {"k": hr.Key()}, batch_size=101, shuffle=True, order=hr.Windowed(block_samples=10))
    (batch,) = keys
    assert sorted(batch["k"]) == [f"{n:03}" for n in range(101)]
    assert loader.state_dict()["grouping"] == "order Windowed(block_samples=10, window_blocks=128)"
