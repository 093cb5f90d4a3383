"""A Loader over a store gives what it gives over the same files on this machine, whatever happens on the way."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import add_file
from loader_data import encode, photograph
from servers import Answer, Seen, StoreServer

import headrace as hr
from headrace.errors import ChangedError, NotFoundError, ReadError
from headrace.fetch import executor

SAMPLES, TARS = 24, 3
VIEW = hr.RandomResizedCrop(32)


def tars() -> dict[str, bytes]:
    found = {}
    for part in range(TARS):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for at in range(part, SAMPLES, TARS):
                add_file(tar, f"{at:03}.jpg", encode(photograph(at, 60, 80), "JPEG"))
                add_file(tar, f"{at:03}.cls", str(at % 5).encode())
        found[f"shards/{part}.tar"] = out.getvalue()
    return found


CONTENT = tars()


@pytest.fixture
def local(tmp_path: Path) -> hr.Dataset:
    for key, data in CONTENT.items():
        (tmp_path / key.rpartition("/")[2]).write_bytes(data)
    return hr.open(str(tmp_path / "*.tar"))


@pytest.fixture
def remote(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hr.Dataset:
    monkeypatch.setattr(executor, "_FIRST_PAUSE_S", 0.001)
    store.objects |= CONTENT
    return hr.open("s3://bucket/shards/*.tar", store_options=store.options, cache=tmp_path / "indices")


def loader(dataset: hr.Dataset, **options: Any) -> hr.Loader:
    given = {"view": VIEW, "batch_size": 5, "shuffle": True, "seed": 3, "output": "numpy", "threads": 2, **options}
    return hr.Loader(dataset, **given)


def assert_same(first: Iterator[Any] | hr.Loader, second: Iterator[Any] | hr.Loader) -> None:
    for ours, theirs in zip(first, second, strict=True):
        assert ours.keys() == theirs.keys()
        for name in ours:
            assert np.array_equal(ours[name], theirs[name]), name


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"order": hr.Windowed(block_samples=4, window_blocks=2)},
        {"shuffle": False},
        {"remainder": "wrap", "batch_size": 9},
        {"world_size": 2, "rank": 1},
        {"view": hr.Resize((40, 40)), "cache": "ram:10MB"},
    ],
    ids=["global", "windowed", "in order", "wrap", "rank", "cached"],
)
def test_batches_are_those_of_the_same_files_here(local: hr.Dataset, remote: hr.Dataset, options: Any) -> None:
    ours, theirs = loader(remote, **options), loader(local, **options)
    for _ in range(2):
        assert_same(ours, theirs)


def test_a_state_goes_on_over_a_store(local: hr.Dataset, remote: hr.Dataset) -> None:
    first = loader(local)
    batches = iter(first)
    next(batches)
    next(batches)
    second = loader(remote)
    second.load_state_dict(first.state_dict())
    assert_same(iter(second), batches)


def test_what_is_cached_is_not_asked_for_again(remote: hr.Dataset, store: StoreServer) -> None:
    ours = loader(remote, cache="ram:10MB")
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


@pytest.mark.parametrize(
    "answer",
    [Answer(503, "SlowDown"), Answer(500, "InternalError"), Answer(act="reset"), Answer(act="truncate")],
    ids=["slow down", "internal", "reset", "truncated"],
)
def test_what_passes_changes_no_batch(
    local: hr.Dataset, remote: hr.Dataset, store: StoreServer, answer: Answer
) -> None:
    store.fail_first(4, answer)
    ours = loader(remote)
    assert_same(ours, loader(local))
    stats = ours.stats()
    assert stats.fetch is not None
    assert stats.fetch.counts.retries >= 3
    assert stats.bad == 0


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


def test_a_store_that_never_comes_back_names_the_range_and_the_attempts(remote: hr.Dataset, store: StoreServer) -> None:
    store.fault = lambda seen: Answer(503, "SlowDown") if seen.key == "shards/2.tar" else None
    with pytest.raises(ReadError, match=r"^s3://bucket/shards/2.tar, bytes \d+ to \d+: .* at each of 6 attempts"):
        list(loader(remote))


def test_leaving_in_the_middle_ends_what_is_under_way(remote: hr.Dataset, store: StoreServer) -> None:
    batches = iter(loader(remote, batch_size=2, prefetch=1))
    next(batches)
    del batches
    list(loader(remote))
