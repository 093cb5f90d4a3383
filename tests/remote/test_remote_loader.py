"""A Loader over a store gives what it gives over the same files on this machine, whatever happens on the way."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from archives import add_file
from loader_data import encode, photograph
from remote_runs import WINDOWED, assert_same, loader, open_here, open_there
from servers import Answer, Seen, StoreServer

import headrace as hr
from headrace.errors import ChangedError, NotFoundError, ReadError, UsageError
from headrace.fetch import read_groups
from headrace.stores import LinkModel


@pytest.fixture
def local(tmp_path: Path) -> hr.Dataset:
    return open_here(tmp_path)


@pytest.fixture
def remote(store: StoreServer, tmp_path: Path) -> hr.Dataset:
    return open_there(store, tmp_path / "indices")


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": WINDOWED},
        {"shuffle": False},
        {"remainder": "wrap", "batch_size": 9},
        {"world_size": 2, "rank": 1},
        {"weights": [1.0] * 3 + [0.0] * 21, "batch_size": 8},
        {"view": hr.Resize((40, 40)), "cache": "ram:10MB"},
    ],
    ids=["global", "windowed", "in order", "wrap", "rank", "samples twice in a step", "cached"],
)
def test_batches_are_those_of_the_same_files_here(local: hr.Dataset, remote: hr.Dataset, options: Any) -> None:
    ours, theirs = loader(remote, **options), loader(local, **options)
    for _ in range(2):
        assert_same(ours, theirs)


def test_a_node_of_several_drops_by_plan_and_fetches_the_rest(
    local: hr.Dataset, remote: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    place: dict[str, Any] = {"world_size": 2, "rank": 0, "batch_size": 2}
    index_and_map, sample = 8192 + 32768, 5 * 1024
    ours, theirs = loader(remote, cache=f"ram:{index_and_map + 6 * sample}B", **place), loader(local, **place)
    evicted = 0
    for _ in range(5):
        assert_same(ours, theirs)
        cached = ours.stats().cache
        assert cached is not None
        assert cached.damaged == 0
        evicted += cached.evicted
    assert evicted > 0


def test_a_window_above_the_free_memory_is_an_error_at_the_start(
    local: hr.Dataset, remote: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_groups, "available_to_rank", lambda: 20_000)
    window = {"order": hr.Windowed(block_samples=4, window_blocks=4, lanes=1)}
    with pytest.raises(UsageError, match=r"order: expected windows of remote samples of which two.* got 16 samples of"):
        loader(remote, **window)
    loader(local, **window)
    loader(remote)
    monkeypatch.setattr(read_groups, "available_to_rank", lambda: 1 << 30)
    loader(remote, **window)


def test_a_state_goes_on_over_a_store(local: hr.Dataset, remote: hr.Dataset) -> None:
    first = loader(local)
    batches = iter(first)
    next(batches)
    next(batches)
    second = loader(remote)
    second.load_state_dict(first.state_dict())
    assert_same(iter(second), batches)


def test_what_is_cached_is_not_asked_for_again(remote: hr.Dataset, store: StoreServer) -> None:
    before = len(store.requests)
    ours = loader(remote, cache="ram:10MB")
    assert len(store.requests) == before  # versions of the listing tell the content
    list(ours)
    before = len(store.requests)
    list(ours)
    assert len(store.requests) == before
    fetched, cached = ours.stats().fetch, ours.stats().cache
    assert fetched is not None
    assert cached is not None
    assert fetched.counts.requests == 0
    assert cached.hit_rate == 1.0


def test_pixels_that_the_core_leaves_to_pillow_are_not_fetched_twice(store: StoreServer, tmp_path: Path) -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for at in range(6):
            add_file(tar, f"{at}.webp", encode(photograph(at, 40, 40), "WEBP", lossless=True))
    store.objects["one.tar"] = out.getvalue()
    data = hr.open("s3://bucket/one.tar", store_options=store.options, cache=tmp_path / "indices")
    before = len(store.requests)
    list(loader(data, view=hr.Resize((24, 24)), batch_size=3))
    assert len(store.requests) == before + 1


def test_a_shard_replaced_between_save_and_resume_is_named(
    remote: hr.Dataset, store: StoreServer, tmp_path: Path
) -> None:
    begun = loader(remote)
    next(passing := iter(begun))
    passing.close()
    state = begun.state_dict()
    requests = len(store.requests)
    loader(remote).load_state_dict(state)
    assert len(store.requests) == requests  # versions are known from opening
    store.objects["shards/1.tar"] = store.objects["shards/1.tar"][:-1] + b"\1"  # in the padding: the index is right
    options = {"store_options": store.options, "cache": tmp_path / "indices"}
    again = loader(hr.open("s3://bucket/shards/*.tar", **options))
    with pytest.raises(ChangedError, match=r"shards/1\.tar"):
        again.load_state_dict(state)
    again.load_state_dict(state, allow_changed=True)
    assert again.next_step == 1


def test_a_state_goes_on_over_the_same_shards_on_this_machine(local: hr.Dataset, remote: hr.Dataset) -> None:
    begun = loader(remote)
    next(passing := iter(begun))
    passing.close()
    resumed = loader(local)
    resumed.load_state_dict(begun.state_dict())
    assert resumed.next_step == 1


@pytest.mark.parametrize(
    ("status", "code", "error", "words"),
    [
        (403, "AccessDenied", ReadError, "403 Forbidden (AccessDenied)"),
        (404, "NoSuchKey", NotFoundError, "404 Not Found"),
        (412, "PreconditionFailed", ChangedError, "It was replaced since it was opened: open it again"),
    ],
)
def test_what_stays_wrong_is_raised_and_never_a_bad_sample(
    remote: hr.Dataset, store: StoreServer, status: int, code: str, error: type[Exception], words: str
) -> None:
    def fault(seen: Seen) -> Answer | None:
        return Answer(status, code) if seen.key == "shards/1.tar" else None

    store.fault = fault
    ours = loader(remote)
    with pytest.raises(error) as caught:
        list(ours)
    assert str(caught.value).startswith("s3://bucket/shards/1.tar, bytes ")
    assert words in str(caught.value)
    assert ours.stats().bad == 0


def test_a_notebook_waits_for_no_request(store: StoreServer, remote: hr.Dataset) -> None:
    store.requests.clear()
    assert repr(remote) in remote._repr_html_()
    assert "<img" not in remote._repr_html_()
    assert not store.requests


def test_a_store_that_never_comes_back_names_the_range_and_the_attempts(store: StoreServer, tmp_path: Path) -> None:
    remote = open_there(store, tmp_path / "indices", retry_for=0.1)
    store.fault = lambda seen: Answer(503, "SlowDown") if seen.key == "shards/2.tar" else None
    with pytest.raises(ReadError, match=r"^s3://bucket/shards/2.tar, bytes \d+ to \d+: .* at each of \d+ attempts"):
        list(loader(remote))


def test_windows_that_do_not_fit_the_memory_are_an_error_at_start(
    remote: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_groups, "available_to_rank", lambda: 40_000)
    with pytest.raises(UsageError, match=r"free for this rank.*hr.Windowed\(window_blocks=\d") as caught:
        loader(remote, order=hr.Windowed(block_samples=1, window_blocks=16, lanes=1))
    fits = int(str(caught.value).rpartition("window_blocks=")[2].rstrip(")"))
    loader(remote, order=hr.Windowed(block_samples=1, window_blocks=fits, lanes=1))
    with pytest.raises(UsageError, match=r"Lower block_bytes of hr\.Windowed"):
        loader(remote, order=hr.Windowed(block_samples=24, window_blocks=1, lanes=1))
    loader(remote)  # the global order takes what there is


@pytest.mark.one_in(2)
@pytest.mark.parametrize("gap_bytes", [0, 1 << 30], ids=["no gap read", "all gaps read"])
@pytest.mark.long
def test_bytes_ahead_stay_within_their_memory_in_every_epoch(
    remote: hr.Dataset, monkeypatch: pytest.MonkeyPatch, gap_bytes: int
) -> None:
    limit = 24_000  # of some 76,000
    monkeypatch.setattr(read_groups, "_LEAST_BYTES", limit)
    monkeypatch.setattr(read_groups, "_MOST_BYTES", limit)
    monkeypatch.setattr(LinkModel, "gap_bytes", gap_bytes)
    ours = loader(remote, batch_size=2, prefetch=1)
    for _ in range(3):
        held = []
        for _ in ours:
            fetch = ours.stats().fetch
            assert fetch is not None
            held.append(fetch.held_bytes)
        assert 0 < max(held) <= limit
        assert held[-1] == 0


def test_leaving_in_the_middle_ends_what_is_under_way(remote: hr.Dataset, store: StoreServer) -> None:
    batches = iter(loader(remote, batch_size=2, prefetch=1))
    next(batches)
    del batches
    list(loader(remote))


@pytest.mark.parametrize(("world_size", "lanes", "warns"), [(2, 2, 0), (4, 2, 1), (4, 4, 0), (3, 4, 0)])
def test_a_windowed_order_with_fewer_lanes_than_ranks_is_logged_by_the_first(
    remote: hr.Dataset, caplog: pytest.LogCaptureFixture, world_size: int, lanes: int, warns: int
) -> None:
    order = hr.Windowed(block_samples=2, window_blocks=4, lanes=lanes)
    for rank in range(world_size):
        loader(remote, order=order, world_size=world_size, rank=rank, batch_size=2)
    said = [record.getMessage() for record in caplog.records if "lanes" in record.getMessage()]
    assert len(said) == warns
    assert all(f"lanes={world_size}" in each for each in said)
