"""A cache smaller than the data stores neighbours in storage, so that it saves requests as well as bytes."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archives import add_file
from servers import StoreServer

import headrace as hr
from headrace import _core
from headrace.fetch import read_groups
from headrace.loader import cache_admission
from headrace.loader.cache_admission import Admission, least_bytes, samples_that_fit
from headrace.plan import UniformPlan
from headrace.stores import LinkModel
from headrace.stores.link import HedgeBudget

TARS, MEMBERS = 4, 200
SAMPLES = TARS * MEMBERS
EPOCHS = 2


def tar_of(part: int) -> bytes:
    rng, out = np.random.default_rng(part), io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for at in range(MEMBERS):
            add_file(tar, f"{at:03}.bin", rng.bytes(int(rng.integers(600, 1400))))
    return out.getvalue()


@pytest.fixture
def dataset(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hr.Dataset:
    monkeypatch.setattr(LinkModel, "gap_bytes", 2_600)
    monkeypatch.setattr(LinkModel, "request_bytes", 4_096)
    monkeypatch.setattr(HedgeBudget, "take", lambda _: False)  # second requests of a slow machine would count
    for name in ("_LEAST_BYTES", "_MOST_BYTES"):
        monkeypatch.setattr(read_groups, name, 600_000)
    store.objects |= {f"{part}.tar": tar_of(part) for part in range(TARS)}
    return hr.open("s3://bucket/*.tar", store_options=store.options, cache=tmp_path / "indices")


def loader(dataset: hr.Dataset, **options: Any) -> hr.Loader:
    given = {"batch_size": 16, "shuffle": True, "seed": 3, "output": "numpy", "threads": 2, **options}
    return hr.Loader(dataset, {"bin": hr.Raw(), "id": hr.Key()}, **given)


def cache_of(dataset: hr.Dataset, share: float) -> str:
    """Return a cache for a share of the samples' bytes."""
    column = dataset.table.bytes_of("bin")
    stored = column.stored_bytes(np.arange(SAMPLES))
    assert stored is not None
    return f"ram:{_core.cache_bytes(SAMPLES, reuses=False) + int(share * stored.sum())}B"


def epochs(of: hr.Loader, store: StoreServer) -> list[tuple[list[Any], int, int]]:
    """Return the batches of each epoch with the requests and the bytes that came to the server."""
    found = []
    for _ in range(EPOCHS):
        store.requests.clear()
        batches = [list(zip(batch["id"], batch["bin"], strict=True)) for batch in of]
        found.append((batches, len(store.requests), store.bytes_read()))
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", [3, 4])
def test_a_quarter_cached_saves_a_quarter_of_requests_and_bytes(
    dataset: hr.Dataset, store: StoreServer, seed: int
) -> None:
    order = hr.Windowed(block_samples=8, window_blocks=6, lanes=1)
    plain = epochs(loader(dataset, seed=seed, order=order), store)
    ours = loader(dataset, seed=seed, order=order, cache=cache_of(dataset, 0.25))
    cached = epochs(ours, store)
    for (expected, requests, read), (batches, fewer, less) in list(zip(plain, cached, strict=True))[1:]:
        assert batches == expected
        assert fewer <= 0.76 * requests
        assert less <= 0.76 * read
    stats = ours.stats().cache
    assert stats is not None
    assert stats.stopped == "full"
    assert 0.24 < stats.hit_rate < 0.27


def test_the_global_order_saves_more_requests_than_its_share(dataset: hr.Dataset, store: StoreServer) -> None:
    plain = epochs(loader(dataset, order="global"), store)
    cached = epochs(loader(dataset, order="global", cache=cache_of(dataset, 0.25)), store)
    for (expected, requests, read), (batches, fewer, less) in list(zip(plain, cached, strict=True))[1:]:
        assert batches == expected
        assert fewer <= 0.76 * requests
        assert less <= 0.76 * read


def test_two_jobs_with_other_seeds_fill_one_cache_with_the_same_samples(
    dataset: hr.Dataset, store: StoreServer, tmp_path: Path
) -> None:
    place = f"disk:{tmp_path}/cache:" + cache_of(dataset, 0.5).removeprefix("ram:")
    first, second = (loader(dataset, seed=seed, cache=place) for seed in (3, 4))
    half = iter(first)
    for _ in range(len(first) // 2):
        next(half)
    list(second)
    list(half)
    stats = first.stats().cache
    assert stats is not None
    assert stats.stopped == "full"
    list(first)
    list(second)
    rates = [each.stats().cache.hit_rate for each in (first, second)]
    assert rates[0] == rates[1] == pytest.approx(0.5, abs=0.02)


@pytest.fixture
def here(tmp_path: Path) -> hr.Dataset:
    """The same dataset in files."""
    for part in range(TARS):
        (tmp_path / f"{part}.tar").write_bytes(tar_of(part))
    return hr.open(str(tmp_path / "*.tar"))


def test_the_samples_that_fit_are_those_before_the_first_that_does_not(
    here: hr.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_admission, "_SUMMED_SAMPLES", 7)
    stored = here.table.bytes_of("bin").stored_bytes(np.arange(SAMPLES))
    assert stored is not None
    plan = UniformPlan(length=SAMPLES, batch_size=4, seed=0)
    for stop in (0, 1, 7, 8, 100):
        room = int(2 * stored[:stop].sum()) + stop * 10 + 5
        found = samples_that_fit(here, plan, ["bin", "bin"], 10, room_bytes=room)
        assert found == Admission(stop, 5)
        assert found.keeps(np.array([stop, stop - 1])).tolist() == [0, 1]
    assert samples_that_fit(here, plan, ["bin"], 0, room_bytes=int(stored.sum())) is None


def test_a_selection_counts_its_own_samples(here: hr.Dataset) -> None:
    stored = here.table.bytes_of("bin").stored_bytes(np.arange(SAMPLES))
    assert stored is not None
    chosen = here.select(np.arange(SAMPLES)[::-3])
    plan = UniformPlan(length=len(chosen), batch_size=4, seed=0)
    room = int(stored[::-3][:20].sum())
    assert samples_that_fit(chosen, plan, ["bin"], 0, room_bytes=room) == Admission(20, 0)


@pytest.mark.parametrize(
    ("field", "cut", "size", "expected"),
    [
        (hr.Image(), "final", (4, 6), 72),
        (hr.Image(dtype="float32", mode="L"), "final", (4, 6), 24),
        (hr.Image(shrink_to=8), "shrunk", None, 192),
        (hr.Image(), "final", None, 0),
        (hr.Mask(dtype="int64"), "final", (4, 6), 192),
        (hr.Depth(dtype="float16"), "final", (4, 6), 72),
    ],
)
def test_the_least_bytes_of_pixels(field: Any, cut: str, size: tuple[int, int] | None, expected: int) -> None:
    assert least_bytes(field, cut, size) == expected


@pytest.mark.one_in(2)
@pytest.mark.parametrize("order", [hr.Windowed(block_samples=8, window_blocks=24, lanes=8), "global"])
def test_four_ranks_of_a_node_read_no_more_than_one(dataset: hr.Dataset, store: StoreServer, order: Any) -> None:
    """Ranks take samples of their own, and in windows with whole lanes blocks of their own."""
    read = []
    for ranks in (1, 4):
        store.requests.clear()
        for rank in range(ranks):
            list(loader(dataset, order=order, batch_size=16 // ranks, rank=rank, world_size=ranks))
        read.append(store.bytes_read())
    assert read[1] <= 1.05 * read[0]
