"""A Loader on one node of several keeps what that node reads again first, and its batches stay what they are."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import zlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from loader_data import encode, photograph
from processes import start_python

import headrace as hr
from headrace.cache import Store
from headrace.plan import UniformPlan, WindowShape
from headrace.system import rank_of_process, ranks_of_node

SAMPLES, BATCH, SIDE = 480, 4, 32
VIEW = hr.Resize((SIDE, SIDE))
TAKEN = 3 * SIDE * SIDE
"""Bytes that a sample takes: three units of 1,024."""
INDEX = 4096 + 16384
MAP = 32768


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> hr.Dataset:
    folder = tmp_path_factory.mktemp("photographs")
    some = [encode(photograph(at, 40, 48), "JPEG") for at in range(16)]
    for at in range(SAMPLES):
        (folder / f"{at:03}.jpg").write_bytes(some[at % 16] + bytes([at % 256]))
    return hr.open(folder)


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Says which ranks share the node of the loaders made from now on."""

    def said(local_rank: int, local_world_size: int) -> None:
        monkeypatch.setenv("LOCAL_RANK", str(local_rank))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local_world_size))

    said(0, 1)
    return said


def loader(data: hr.Dataset, cache: str | None, **options: Any) -> hr.Loader:
    given = {"view": VIEW, "batch_size": BATCH, "shuffle": True, "seed": 3, "output": "numpy"}
    given |= {"threads": 2, "prefetch": 2, **options}
    return hr.Loader(data, {"image": hr.Image(), "id": hr.Key()}, cache=cache, **given)


def drain(of: hr.Loader) -> None:
    for _ in of:
        pass


def cache_of(place: object, share: float, *, more: int = 0) -> str:
    return f"{place}:{INDEX + MAP + int(share * SAMPLES) * TAKEN + more}B"


def assert_same(ours: hr.Loader, theirs: hr.Loader) -> None:
    for first, second in zip(ours, theirs, strict=True):
        for name in first:
            assert np.array_equal(first[name], second[name]), name


def belady(plan: UniformPlan, epochs: int, room: int) -> list[float]:
    """Share of hits in each epoch of a cache of `room` samples that knows all that will be read."""
    reads = [plan.batch(epoch, step).samples.tolist() for epoch in range(2 * epochs) for step in range(plan.steps)]
    sequence = [(at, sample) for at, batch in enumerate(reads) for sample in batch]
    uses: dict[int, list[int]] = {}
    for at, sample in reversed(sequence):
        uses.setdefault(sample, []).append(at)
    kept: dict[int, float] = {}
    hits = [0] * len(reads)
    for at, sample in sequence:
        uses[sample].pop()
        hits[at] += kept.pop(sample, None) is not None
        kept[sample] = uses[sample][-1] if uses[sample] else float("inf")
        if len(kept) > room:
            del kept[max(kept, key=kept.__getitem__)]
    return [
        sum(hits[epoch * plan.steps : (epoch + 1) * plan.steps]) / (len(sequence) / 2 / epochs)
        for epoch in range(epochs)
    ]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("place", "order"),
    [("ram", "global"), ("disk", hr.Windowed(block_samples=4, window_blocks=8, lanes=4))],
    ids=["ram, global", "disk, windowed"],
)
def test_hits_are_nearly_those_of_beladys_rule(
    data: hr.Dataset, node: Any, tmp_path: Any, order: Any, place: str
) -> None:
    """Of two nodes with a cache for a quarter of the data each: twice what keeping the first samples gives."""
    window = None if order == "global" else WindowShape(block=4, blocks=8, lanes=4)
    epochs, room = 4, SAMPLES // 4
    for rank in range(2):
        where = "ram" if place == "ram" else f"disk:{tmp_path / str(rank)}"
        options = {"rank": rank, "world_size": 2, "order": order}
        own = 2 * os.getpid() + rank  # memory of another limit is another cache
        ours = loader(data, cache_of(where, 0.25, more=own % 1000), **options)
        theirs = loader(data, None, **options)
        rates = []
        for _ in range(epochs):
            assert_same(ours, theirs)
            stats = ours.stats().cache
            assert stats is not None
            assert stats.damaged == 0
            assert stats.used_bytes <= stats.limit_bytes
            rates.append(stats.hit_rate)
        plan = UniformPlan(length=SAMPLES, batch_size=BATCH, world_size=2, rank=rank, seed=3, window=window)
        best = belady(plan, epochs, room)
        assert rates[0] == 0
        assert np.mean(rates[1:]) > np.mean(best[1:]) - 0.08
        assert np.mean(rates[1:]) > 0.25 + 0.1
        assert ours.stats().cache.evicted > 0


def test_ranks_of_a_node_share_what_they_keep(data: hr.Dataset, node: Any, tmp_path: Any) -> None:
    """Two of four ranks, step by step: what one keeps the other finds, and neither drops what the other needs."""
    ranks = []
    for rank in range(2):
        node(rank, 2)
        ranks.append(loader(data, cache_of(f"disk:{tmp_path}", 0.25), rank=rank, world_size=4, batch_size=3))
    rates = []
    for _ in range(6):
        passes = [iter(each) for each in ranks]
        for batches in zip(*passes, strict=True):
            assert len(batches) == 2
        found = [each.stats().cache for each in ranks]
        rates.append(sum(each.hits for each in found) / sum(each.hits + each.misses for each in found))
        assert all(each.damaged == 0 for each in found)
    assert len(os.listdir(tmp_path)) == 1
    assert np.mean(rates[2:]) > 0.35


def test_a_cache_that_others_empty_changes_no_batch(data: hr.Dataset, node: Any, tmp_path: Any) -> None:
    options = {"rank": 0, "world_size": 2, "prefetch": 2}
    ours, theirs = loader(data, cache_of(f"disk:{tmp_path}", 0.5), **options), loader(data, None, **options)
    drain(ours)
    drain(theirs)
    cache = ours._feed.cache
    assert cache is not None
    for mine, expected in zip(ours, theirs, strict=True):
        assert np.array_equal(mine["image"], expected["image"])
        cache.store.native.evict(np.arange(SAMPLES))
        cache.store.native.resume()
    assert ours.stats().cache.damaged == 0


def test_a_run_that_goes_on_finds_what_its_cache_had(data: hr.Dataset, node: Any, tmp_path: Any) -> None:
    options = {"rank": 1, "world_size": 2}
    first = loader(data, cache_of(f"disk:{tmp_path}", 0.25), **options)
    for _ in range(3):
        drain(first)
    state = first.state_dict()
    kept = first.stats().cache.used_bytes
    del first
    second = loader(data, cache_of(f"disk:{tmp_path}", 0.25), **options)
    second.load_state_dict(state)
    drain(second)
    stats = second.stats().cache
    assert stats.hit_rate > 0.35
    assert kept - SAMPLES // 16 * TAKEN < stats.used_bytes <= stats.limit_bytes


def check_of(before: int, batch: Any) -> int:
    return zlib.crc32(batch["image"].tobytes(), before)


RANK = """
    import json, sys, zlib
    import headrace as hr
    folder, cache, rank, epochs = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
    loader = hr.Loader(
        folder, {"image": hr.Image()}, view=hr.Resize((32, 32)), batch_size=4, shuffle=True, seed=3, threads=1,
        output="numpy", cache=cache, rank=rank, world_size=4,
    )
    for epoch in range(epochs):
        check = 0
        for batch in loader:
            check = zlib.crc32(batch["image"].tobytes(), check)
            print("batch", flush=True)
        stats = loader.stats().cache
        print(json.dumps([check, 0 if stats is None else stats.damaged]), flush=True)
"""


@pytest.mark.long
@pytest.mark.parametrize("batches", [0, 31, 64])
def test_a_rank_that_is_killed_takes_nothing_with_it(
    data: hr.Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, batches: int
) -> None:
    """Two nodes of two ranks, in processes: the other three go on with their own batches, and the cache opens again."""
    folder, epochs = os.path.dirname(data.paths("image", np.array([0]))[0]), 3

    def start(rank: int) -> subprocess.Popen[str]:
        monkeypatch.setenv("LOCAL_RANK", str(rank % 2))
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
        cache = cache_of(f"disk:{tmp_path / str(rank // 2)}", 0.25)
        return start_python(RANK, folder, cache, rank, epochs)

    def checks(rank: subprocess.Popen[str]) -> list[tuple[int, int]]:
        out, error = rank.communicate(timeout=60)
        assert rank.returncode == 0, error
        return [tuple(json.loads(line)) for line in out.splitlines() if line != "batch"]

    expected = []
    for rank in range(4):
        alone = loader(data, None, rank=rank, world_size=4)
        expected.append([(functools.reduce(check_of, alone, 0), 0) for _ in range(epochs)])
    ranks = [start(rank) for rank in range(4)]
    for _ in range(batches):
        assert ranks[1].stdout.readline()
    ranks[1].send_signal(signal.SIGKILL)
    ranks[1].communicate(timeout=60)
    for rank in (0, 2, 3):
        assert checks(ranks[rank]) == expected[rank]
    for rank, again in enumerate([start(rank) for rank in range(4)]):
        assert checks(again) == expected[rank]
    for node in range(2):
        (name,) = os.listdir(tmp_path / str(node))
        assert os.path.getsize(tmp_path / str(node) / name) <= INDEX + MAP + SAMPLES // 4 * TAKEN


@pytest.mark.parametrize(
    ("options", "local"),
    [({"rank": 0, "world_size": 2}, (0, 2)), ({}, (0, 1)), ({"rank": 0, "world_size": 2, "shuffle": False}, (0, 1))],
    ids=["one node", "one rank", "in order"],
)
def test_nothing_is_dropped_where_the_same_samples_come_each_epoch(
    data: hr.Dataset, node: Any, options: Any, local: tuple[int, int]
) -> None:
    node(*local)
    ours = loader(data, cache_of("ram", 0.25), **options)
    assert ours._feed.cache.eviction is None


def test_a_cache_of_one_node_is_the_file_that_it_was(data: hr.Dataset, tmp_path: Any, monkeypatch: Any) -> None:
    """A run that grows to two nodes has a file of its own beside it, and each finds its own again."""
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    drain(loader(data, cache_of(f"disk:{tmp_path}", 0.5)))
    (before,) = os.listdir(tmp_path)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    monkeypatch.setenv("LOCAL_RANK", "0")
    drain(loader(data, cache_of(f"disk:{tmp_path}", 0.5), rank=0, world_size=2))
    assert len(os.listdir(tmp_path)) == 2
    again = loader(data, cache_of(f"disk:{tmp_path}", 0.5))
    drain(again)
    assert again.stats().cache.hits > 0.4 * SAMPLES
    assert before in os.listdir(tmp_path)


@pytest.mark.parametrize(
    ("variables", "place", "expected"),
    [
        ({}, (1, 4), None),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (3, 4), (2, 4)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "3", "WORLD_SIZE": "4"}, (3, 4), (2, 4)),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "RANK": "3", "WORLD_SIZE": "4"}, (0, 1), None),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, (0, 4), None),
        ({"LOCAL_RANK": "2", "LOCAL_WORLD_SIZE": "2"}, (2, 4), None),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "two"}, (2, 4), None),
        ({"LOCAL_RANK": "0"}, (2, 4), None),
    ],
)
def test_ranks_of_this_node(variables: dict[str, str], place: tuple[int, int], expected: Any) -> None:
    assert ranks_of_node(rank_of_process(*place), variables) == expected


def test_a_store_of_reused_space_is_pickled(tmp_path: Any) -> None:
    import pickle

    from headrace.cache import identity_of, parse_spec

    store = Store(parse_spec(f"disk:{tmp_path}:1MB"), identity_of(4, "pickled"), reuses=True)
    store.put(1, b"one")
    again = pickle.loads(pickle.dumps(store))
    assert again.get(1) == b"one"
    assert again.native.evict(np.array([1])) == 1024
    assert store.get(1) is None
