"""Windowed order: its arithmetic against lists, what a plan makes of it, and when a block comes next."""

from __future__ import annotations

import dataclasses
import json
import math
import tarfile
from collections import Counter, deque
from fractions import Fraction
from itertools import pairwise

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
from headrace.plan.windowed import lanes_of, windowed_epoch
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
    assert (epoch.blocks, epoch.windows) == (-(-epoch.count // epoch.shape.block), len(windows))
    sizes = [len(samples) for _, samples in windows]
    assert epoch.window_at(everywhere).tolist() == np.repeat(np.arange(len(windows)), sizes).tolist()
    starts, stops = epoch.bounds(np.arange(len(windows)))
    assert (stops.tolist(), (stops - starts).tolist()) == (np.cumsum(sizes).tolist(), sizes)


@given(st.integers(1, 2**62), st.integers(1, 2**31), st.integers(1, 2**20), st.integers(0, 2**64 - 1), st.data())
def test_an_epoch_of_any_length_is_found_by_arithmetic(count, block, most, key, data):
    epoch = WindowedEpoch(count=count, shape=WindowShape(block=block, blocks=most), key=key)
    positions = np.array([*data.draw(st.lists(st.integers(0, count - 1), max_size=6)), count - 1])
    samples = epoch.samples_at(positions)
    assert ((samples >= 0) & (samples < count)).all()
    assert len(set(samples.tolist())) == len(set(positions.tolist()))
    windows = epoch.window_at(positions)
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


@pytest.mark.parametrize("lanes", [1, 4])
def test_a_replacement_is_of_its_own_window_and_later_of_any(lanes):
    shape = WindowShape(block=7, blocks=3 * lanes, lanes=lanes)
    plan = UniformPlan(length=1000, batch_size=10, window=shape, remainder="wrap")
    order = windowed_epoch(1000, shape, plan.key(4))
    for position in (0, 500, 999, 1003):
        place = int(lanes_of(1000, 10, lanes).places_of(np.array([position % 1000]))[0])
        first = [plan.replacement(4, position, attempt)[0] for attempt in range(8)]
        assert set(first) <= window_samples(order, place)
        assert len(set(first)) > 1
    far = {plan.replacement(4, 0, attempt)[0] for attempt in range(8, 60)}
    assert len(far - window_samples(order, 0)) > 30


def window_samples(order, position):
    """Samples of the window that a position lies in."""
    start, stop = order.bounds(order.window_at(np.array([position])))
    return set(order.samples_at(np.arange(start[0], stop[0])).tolist())


# --- lanes ---


def listed_lanes(count, batch, lanes):
    """Places in the order of the epoch's positions, from a queue for each lane."""
    starts = [math.ceil(Fraction(lane * batch, lanes)) for lane in range(lanes + 1)]
    edges = [math.floor(Fraction(count * start, batch)) for start in starts]
    queues = [deque(range(first, last)) for first, last in pairwise(edges)]
    taken = []
    for _ in range(count // batch):
        taken += [queue.popleft() for queue, (a, b) in zip(queues, pairwise(starts), strict=True) for _ in range(b - a)]
    return taken + [place for queue in queues for place in queue]


@given(st.integers(1, 200), st.integers(1, 40), st.integers(1, 12))
def test_lanes_are_queues_that_each_batch_takes_from(count, batch, lanes):
    places = lanes_of(count, batch, lanes).places_of(np.arange(count)).tolist()
    assert places == listed_lanes(count, batch, lanes)
    assert sorted(places) == list(range(count))


def test_lanes_of_an_epoch_of_any_length_are_found_by_arithmetic():
    count = 4096 * 10**12
    places = lanes_of(count, 4096, 64).places_of(np.array([0, 63, 64, 4096, 4096 + 64, count - 1]))
    assert places.tolist() == [0, 63, count // 64, 64, count // 64 + 64, count - 1]


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_ranks_read_only_blocks_of_their_lanes(world_size):
    shape = WindowShape(block=10, blocks=16, lanes=8)
    readers = Counter()
    for rank in range(world_size):
        plan = UniformPlan(length=4003, batch_size=32 // world_size, world_size=world_size, rank=rank, window=shape)
        readers.update({sample // 10 for batch in samples_of(plan, 1) for sample in batch})
    assert len(readers) == 401
    # A window of two blocks lies across each edge of two ranks' lanes.
    assert sum(readers.values()) - 401 <= 2 * (world_size - 1)


@st.composite
def laned_plans(draw):
    ranks, each = draw(st.sampled_from([(1, 5), (2, 4), (3, 4), (4, 2)]))
    shape = WindowShape(block=draw(st.integers(1, 9)), blocks=draw(st.integers(1, 20)), lanes=draw(st.integers(1, 9)))
    return UniformPlan(
        length=draw(st.integers(ranks * each, 150)),
        batch_size=each,
        world_size=ranks,
        rank=draw(st.integers(0, ranks - 1)),
        remainder=draw(st.sampled_from(REMAINDERS)),
        window=draw(st.sampled_from([shape, None])),
        seed=draw(st.integers(0, 9)),
    )


@given(laned_plans(), st.data())
def test_reads_are_what_the_steps_have_in_the_order_of_need(plan, data):
    first_step = data.draw(st.integers(0, plan.steps - 1))
    groups = list(plan.reads(3, first_step))
    found = {step: [] for step in range(first_step, plan.steps)}
    for group in groups:
        assert group.first_step == group.steps.min()
        for step, sample in zip(group.steps.tolist(), group.samples.tolist(), strict=True):
            found[step].append(sample)
    assert [group.first_step for group in groups] == sorted(group.first_step for group in groups)
    for step, samples in found.items():
        assert sorted(samples) == sorted(plan.batch(3, step).samples.tolist())


@given(laned_plans())
def test_lanes_change_no_contract(plan):
    batches = samples_of(plan, 1)
    whole = dataclasses.replace(plan, batch_size=plan.global_batch, world_size=1, rank=0)
    ranks = [dataclasses.replace(plan, rank=rank) for rank in range(plan.world_size)]
    joined = [
        [sample for part in parts for sample in part] for parts in zip(*(samples_of(r, 1) for r in ranks), strict=True)
    ]
    assert joined == samples_of(whole, 1)
    assert batches == samples_of(ranks[plan.rank], 1)


SAVED = {"dataset": "sha256:0123", "core": "libjpeg-turbo 2.1.5"}


def test_a_state_resumes_only_in_windows_of_the_same_sizes():
    shape = WindowShape(block=7, blocks=3)
    plan = UniformPlan(length=100, batch_size=8, window=shape)
    state = State.from_dict(json.loads(json.dumps(state_after(plan, epoch=2, steps=5, **SAVED).to_dict())))
    assert state.grouping == "order Windowed(block_samples=7, window_blocks=3, lanes=1)"
    after = dataclasses.replace(plan, batch_size=4, world_size=2, rank=1)
    assert resume(state, after, **SAVED).step == 5
    for other in (
        None,
        WindowShape(block=8, blocks=3),
        WindowShape(block=7, blocks=4),
        WindowShape(block=7, blocks=3, lanes=2),
    ):
        here = "batch_size alone" if other is None else str(other)
        with pytest.raises(StateError) as raised:
            resume(state, dataclasses.replace(plan, window=other), **SAVED)
        text = str(raised.value)
        assert f"expected batches by {here!r}" in text
        assert "got 'order Windowed(block_samples=7, window_blocks=3, lanes=1)' in the state; pass the order=" in text


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
    assert np.array_equal(order, windowed_epoch(60, plan.window, plan.key(0)).samples_at(np.arange(60)))
    position = int(batches[7].positions[0])
    near, _ = source.replacement(0, position, 0)
    window = windowed_epoch(60, plan.window, plan.key(0))
    assert near in window_samples(window, position)


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
    assert Windowed(block_bytes=15_100).resolve(data) == WindowShape(block=10, blocks=128, lanes=8)
    assert Windowed(block_bytes=1).resolve(data).block == 1
    assert Windowed().resolve(data).block == (8 << 20) // 1500
    assert Windowed(window_blocks=9).resolve(data.select(range(3))) == WindowShape(
        block=(8 << 20) // 1500, blocks=9, lanes=8
    )
    assert Windowed().resolve(labelled).block == 64
    loader = hr.Loader(data, {"bin": hr.Raw()}, batch_size=8, shuffle=True, order=hr.Windowed(block_bytes=15_100))
    keys = hr.Loader(data, {"k": hr.Key()}, batch_size=101, shuffle=True, order=hr.Windowed(block_samples=10))
    (batch,) = keys
    assert sorted(batch["k"]) == [f"{n:03}" for n in range(101)]
    assert loader.state_dict()["grouping"] == "order Windowed(block_samples=10, window_blocks=128, lanes=8)"
