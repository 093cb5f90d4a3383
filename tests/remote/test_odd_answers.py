"""Answers of the right length that hold other bytes, such as the page of a proxy: what was read is read once more."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loader_data import encode, photograph
from remote_runs import WINDOWED, assert_same, loader
from servers import Answer, Seen, StoreServer
from test_remote_archives import tar_of, zip_of

import headrace as hr
from headrace.errors import ChangedError

HTML = Answer(act="html")
COUNT = 12
PHOTOS = {f"{at:03}.jpg": encode(photograph(at, 60, 80), "JPEG") for at in range(COUNT)}
PHOTOS["006.jpg"] = encode(photograph(6, 60, 80), "GIF")  # which the core leaves to a library
SOURCES = {"tar": "a.tar", "zip": "a.zip", "photos": "photos/*.jpg"}
READS = {
    "one sample": lambda opened: opened[5],
    "a field": lambda opened: opened.read("image", 5),
    "a column": lambda opened: opened.column("image")[5],
}


@pytest.fixture
def remote(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    store.objects |= {"a.tar": tar_of(PHOTOS), "a.zip": zip_of(PHOTOS)}
    store.objects |= {f"photos/{name}": data for name, data in PHOTOS.items()}
    (tmp_path / "photos").mkdir()
    for key, data in store.objects.items():
        (tmp_path / key).write_bytes(data)
    return store


def opened_at(store: StoreServer, source: str) -> hr.Dataset:
    return hr.open(f"s3://bucket/{SOURCES[source]}", store_options=store.options)


def fail_next(store: StoreServer) -> list[Seen]:
    """Answer to the next request with HTML, and return what will be that request."""
    failed: list[Seen] = []

    def fault(seen: Seen) -> Answer | None:
        if failed:
            return None
        failed.append(seen)
        return HTML

    store.fault = fault
    return failed


@pytest.mark.parametrize("order", ["global", WINDOWED], ids=["global", "windowed"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.one_in(3)
def test_an_odd_answer_changes_no_batch(remote: StoreServer, tmp_path: Path, source: str, order: Any) -> None:
    ours = loader(opened_at(remote, source), order=order)
    here = loader(hr.open(tmp_path / SOURCES[source]), order=order)
    failed = fail_next(remote)
    assert_same(ours, here)
    assert len(failed) == 1
    assert ours.stats().bad == 0


@pytest.mark.parametrize("source", ["tar", "zip"])
def test_odd_answers_that_stay_do_not_blame_the_index(remote: StoreServer, source: str) -> None:
    ours = loader(opened_at(remote, source))
    remote.fault = lambda seen: HTML
    before = len(remote.requests)
    with pytest.raises(ChangedError) as caught:
        list(ours)
    assert f"s3://bucket/{SOURCES[source]}" in str(caught.value)
    assert "index it again" not in str(caught.value)
    assert len(remote.requests) - before <= 2 * COUNT


def test_a_bad_sample_takes_few_reads_more(remote: StoreServer) -> None:
    remote.objects["a.tar"] = tar_of({"0.jpg": b"no photograph", **PHOTOS})
    ours = loader(opened_at(remote, "tar"), shuffle=False, batch_size=COUNT)
    before = len(remote.requests)
    list(ours)
    assert ours.stats().bad == 1
    assert 0 < sum(seen.start == 0 for seen in remote.requests[before:]) <= 3  # the core's two, a library's one


@pytest.mark.one_in(2)
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("source", ["tar", "zip"])
def test_single_reads_read_odd_answers_once_more(remote: StoreServer, tmp_path: Path, source: str, read: str) -> None:
    opened, here = opened_at(remote, source), hr.open(tmp_path / SOURCES[source])
    expected = READS[read](here)
    failed = fail_next(remote)
    assert READS[read](opened) == expected
    assert len(failed) == 1
    remote.fault = lambda seen: HTML
    with pytest.raises(ChangedError):
        READS[read](opened)
