"""Jobs with other seeds on one cold cache fetch each sample once, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import eventually, start_python
from servers import SECRET, Answer, Seen, StoreServer
from test_cache_admission import cache_of, loader, tar_of

import headrace as hr
from headrace.cache import Claims
from headrace.loader import shared_fetches
from headrace.stores import LinkModel

TARS = 4
WINDOWED = hr.Windowed(block_samples=8, window_blocks=24)


@pytest.fixture
def dataset(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> hr.Dataset:
    monkeypatch.setattr(LinkModel, "gap_bytes", 2_600)
    monkeypatch.setattr(LinkModel, "request_bytes", 4_096)
    store.objects |= {f"{part}.tar": tar_of(part) for part in range(TARS)}
    return opened(store, tmp_path)


def opened(store: StoreServer, folder: Path, key: str = "AKIAOWN") -> hr.Dataset:
    options = {"endpoint": store.endpoint, "region": "r", "access_key_id": key, "secret_access_key": SECRET}
    return hr.open("s3://bucket/*.tar", store_options=options, cache=folder / "indices")


def batches(of: hr.Loader) -> list[Any]:
    return [list(zip(batch["id"], batch["bin"], strict=True)) for batch in of]


def side_by_side(loaders: list[hr.Loader]) -> list[list[Any]]:
    """Return the batches of an epoch of each loader, all at once."""
    found: dict[int, list[Any]] = {}
    threads = [
        threading.Thread(target=lambda at=at, each=each: found.update({at: batches(each)}))
        for at, each in enumerate(loaders)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return [found[at] for at in range(len(loaders))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("order", "place"), [("global", "ram"), (WINDOWED, "disk")], ids=["global, in RAM", "windowed, on a disk"]
)
def test_two_jobs_with_other_seeds_read_little_more_than_one(
    dataset: hr.Dataset, store: StoreServer, tmp_path: Path, order: Any, place: str
) -> None:
    store.requests.clear()
    expected = [batches(loader(dataset, seed=3, order=order))]
    alone = store.bytes_read()
    expected.append(batches(loader(dataset, seed=4, order=order)))
    store.requests.clear()
    cache = f"ram:{40_000_000 + os.getpid()}B" if place == "ram" else f"disk:{tmp_path}/cache:40MB"
    jobs = [loader(dataset, seed=seed, order=order, cache=cache) for seed in (3, 4)]
    assert side_by_side(jobs) == expected
    assert store.bytes_read() <= 1.05 * alone
    store.requests.clear()
    assert side_by_side(jobs)
    assert store.bytes_read() == 0
    assert all(job.stats().cache.damaged == 0 for job in jobs)


JOB = """
    import sys
    from pathlib import Path
    from types import SimpleNamespace
    sys.path.insert(0, sys.argv[1])
    from test_shared_fetches import loader, opened
    folder = Path(sys.argv[3])
    data = opened(SimpleNamespace(endpoint=sys.argv[2]), folder, "AKIADOOMED")
    list(loader(data, seed=3, cache=f"disk:{folder}/cache:40MB"))
"""


def reads_samples(seen: Seen) -> bool:
    """Return True for a request of the other job for samples, rather than for what identifies a tar."""
    is_its = "AKIADOOMED" in seen.headers.get("authorization", "")
    return is_its and seen.start is not None and seen.end is not None and seen.end - seen.start > 1_500


def hang(seen: Seen) -> Answer | None:
    return Answer(act="stall") if reads_samples(seen) else None


@pytest.mark.one_in(2)
@pytest.mark.parametrize("how", ["killed", "stopped"])
def test_what_another_job_has_claimed_is_taken_over(
    dataset: hr.Dataset, store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The other job claims much of an epoch, and dies or stops before its bytes come."""
    monkeypatch.setattr(shared_fetches, "_WAIT_S", 0.3)
    expected = batches(loader(dataset, seed=4))
    store.fault = hang
    process = start_python(JOB, os.path.dirname(__file__), store.endpoint, tmp_path)
    try:
        assert eventually(lambda: any(map(reads_samples, list(store.requests))))
        ours = loader(dataset, seed=4, cache=f"disk:{tmp_path}/cache:40MB")
        process.send_signal(signal.SIGKILL if how == "killed" else signal.SIGSTOP)
        assert batches(ours) == expected
    finally:
        process.kill()
        process.communicate()
    store.requests.clear()
    batches(ours)
    assert store.bytes_read() == 0
    assert ours.stats().cache.damaged == 0


def test_a_full_cache_shares_nothing_more(dataset: hr.Dataset, store: StoreServer, tmp_path: Path) -> None:
    place = f"disk:{tmp_path}/cache:" + cache_of(dataset, 0.3).removeprefix("ram:")
    expected = [batches(loader(dataset, seed=seed)) for seed in (3, 4)]
    jobs = [loader(dataset, seed=seed, cache=place) for seed in (3, 4)]
    assert side_by_side(jobs) == expected
    assert all(job.stats().cache.stopped == "full" for job in jobs)
    assert side_by_side(jobs)
    assert jobs[0].stats().cache.hit_rate == pytest.approx(0.3, abs=0.02)


def test_a_store_that_takes_no_more_leaves_the_batches_as_they_are(
    dataset: hr.Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk: every write fails."""
    dataset = dataset.select(range(200))
    expected = [batches(loader(dataset, seed=seed)) for seed in (3, 4)]
    monkeypatch.setattr(shared_fetches, "_WAIT_S", 0.2)
    monkeypatch.setattr(shared_fetches.SharedFetches, "_store", lambda *_: None)
    jobs = [loader(dataset, seed=seed, cache=f"disk:{tmp_path}/cache:40MB") for seed in (3, 4)]
    assert side_by_side(jobs) == expected


def test_claims_exclude_others_until_released_or_closed(tmp_path: Path) -> None:
    file = os.open(tmp_path / "cache", os.O_RDWR | os.O_CREAT)
    ours, theirs = Claims(file), Claims(file)
    assert not ours.take(np.array([7, 3, 4, 5])).any()
    assert theirs.take(np.array([5, 6, 7, 8])).tolist() == [True, False, True, False]
    assert ours.theirs(np.array([5, 6, 7, 8])).tolist() == [False, True, False, True]
    ours.release(np.array([4, 5]))
    assert theirs.theirs(np.arange(3, 8)).tolist() == [True, False, False, False, True]
    ours.close()
    assert not theirs.theirs(np.arange(10)).any()
    theirs.close()
    theirs.close()
    os.close(file)
