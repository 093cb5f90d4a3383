"""Progress of scans of archives in a store, what they read at most, and the records of those that take long."""

from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from servers import StoreServer
from test_remote_archives import tar_of

import headrace as hr
from headrace.data.archives import archive_scans, tar_lookahead
from headrace.data.archives.archive_scans import ScanLog, ScanProgress, ScanState, open_each
from headrace.data.remote.listing import Stores
from headrace.data.sources.index_building import UnindexedFile, build_indices
from headrace.errors import NotFoundError
from headrace.stores.link import STREAMS, HedgeBudget, LinkMeter
from headrace.stores.request_planning import LinkModel
from headrace.system import work_through


def state(passed: int, wall_s: float) -> ScanState:
    return ScanState(3, 1, 1000, passed, read_bytes=passed // 10, wall_s=wall_s)


def test_what_is_left_follows_from_what_was_passed() -> None:
    assert state(250, 5.0).left_s == pytest.approx(15.0)
    assert state(250, 5.0).expected_read_bytes == 100
    assert state(0, 5.0).left_s is None
    assert state(250, 0.1).left_s is None, "too early to tell"


def test_long_scans_are_announced_once_and_short_ones_never(caplog: pytest.LogCaptureFixture) -> None:
    paths = [Stores({"anonymous": True, "region": "r"}).path(f"s3://bucket/{name}.tar") for name in "ab"]
    with caplog.at_level(logging.INFO, "headrace"):
        ScanLog(paths).look(state(900, 5.0))
        assert caplog.records == []
        log = ScanLog(paths)
        for passed, wall_s in ((250, 5.0), (260, 5.1), (500, 10.0), (800, 16.0)):
            log.look(state(passed, wall_s))
    first, second = caplog.records
    assert first.levelname == "WARNING"
    assert "3 archives without an index, s3://bucket/a.tar … s3://bucket/b.tar" in first.message
    assert "about 15 s left" in first.message
    assert "headrace index ARCHIVES --to" in first.message
    assert (second.levelname, "about 4 s left" in second.message) == ("INFO", True)


@pytest.fixture
def shards(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    for shard in range(3):
        store.objects[f"{shard}.tar"] = tar_of({f"{shard}{number:03}.jpg": bytes(9_000) for number in range(60)})
    return store


def test_bytes_of_all_archives_are_counted(shards: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HedgeBudget, "take", lambda _: False)  # a busy machine is slow enough for second requests
    stores = Stores(shards.options)
    hr.open("s3://bucket/0.tar", store_options=shards.options)
    seen: list[ScanState] = []
    paths = [stores.path(f"s3://bucket/{shard}.tar") for shard in (0, 1, 2, 3)]
    shards.requests.clear()
    outcomes = build_indices(paths, cache=None, tick=seen.append)
    assert [isinstance(outcome, UnindexedFile) for outcome in outcomes] == [False, False, False, True]
    size = sum(len(shards.objects[f"{shard}.tar"]) for shard in (1, 2))
    last = seen[-1]
    assert (last.archives, last.done) == (2, 2), "one has an index, and one is missing"
    assert (last.total_bytes, last.passed_bytes) == (size, size)
    assert last.read_bytes == shards.bytes_read()
    assert all(one.passed_bytes <= other.passed_bytes for one, other in pairwise(seen))
    assert sum(seen.method == "HEAD" for seen in shards.requests) == 3 + 2, "sizes once; the missing one is asked again"


def test_a_stopped_scan_asks_for_nothing_more(shards: StoreServer) -> None:
    path = Stores(shards.options).path("s3://bucket/0.tar")
    progress = ScanProgress()
    progress.expect([path], cache=None)
    shards.requests.clear()

    def work(_: int) -> None:
        progress.stop.set()
        with progress.scan(path):
            archive_scans.note_scan(512, 0)
            raise AssertionError("it goes on")

    work_through([0], work, name="index", threads=1, one_is_here=False, stop=progress.stop)
    assert shards.requests == []
    missing = Stores(shards.options).path("s3://bucket/none.tar")
    with pytest.raises(NotFoundError):
        open_each([missing], lambda each: each.open().size(), cache=None)


@pytest.mark.parametrize(("member_bytes", "whole"), [(20_000, True), (100_000, False)])
@pytest.mark.long
def test_what_an_index_reads_is_bounded_however_fast_the_link(
    shards: StoreServer, monkeypatch: pytest.MonkeyPatch, member_bytes: int, whole: bool
) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.1, 1e10, streams))
    members = 40 if whole else 200
    sizes = {"cls": 1, "jpg": member_bytes}
    shards.objects["fast.tar"] = tar_of(
        {f"{number:03}.{kind}": bytes(size) for number in range(members) for kind, size in sizes.items()}
    )
    shards.requests.clear()
    assert len(hr.open("s3://bucket/fast.tar", store_options=shards.options)) == members
    size = len(shards.objects["fast.tar"])
    assert shards.bytes_read() <= members * (tar_lookahead.MOST_GAP_BYTES + tar_lookahead.WINDOW_BYTES)
    if whole:
        assert shards.bytes_read() > size * 0.9
        assert len(shards.requests) < members
    else:
        assert shards.bytes_read() <= 0.15 * size
        assert len(shards.requests) <= 1.2 * members


def test_members_of_many_sizes_are_read_whole_where_their_mean_is_small(
    shards: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Photographs, of which every fourth is larger than the most that is read to save a request."""
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.1, 1e10, streams))
    sizes = [5_000, 50_000, 15_000, 10_000] * 60
    shards.objects["photographs.tar"] = tar_of({f"{at:03}.jpg": bytes(size) for at, size in enumerate(sizes)})
    shards.requests.clear()
    assert len(hr.open("s3://bucket/photographs.tar", store_options=shards.options)) == len(sizes)
    assert len(shards.requests) < 12


@pytest.mark.long
def test_a_slow_link_is_asked_for_headers_alone(shards: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same members as on a fast link, where they are read whole: the link decides, while the scan runs."""
    models = [LinkModel(0.1, 1e10, 1)] * 8
    monkeypatch.setattr(
        LinkMeter, "model", lambda _, streams, now_s: models.pop() if models else LinkModel(0.01, 1e5, streams)
    )
    shards.objects["slow.tar"] = tar_of({f"{number:04}.jpg": bytes(20_000) for number in range(400)})
    shards.requests.clear()
    assert len(hr.open("s3://bucket/slow.tar", store_options=shards.options)) == 400
    assert shards.bytes_read() < len(shards.objects["slow.tar"]) * 0.8


@pytest.mark.long
def test_one_large_tar_of_small_members_is_read_over_several_streams(
    shards: StoreServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.1, 1e10, streams))
    monkeypatch.setattr(tar_lookahead, "_MOST_PIECE_BYTES", 64 << 10)
    data = {f"{number:04}.jpg": bytes([number % 251]) * 3_000 for number in range(900)}
    shards.objects["large.tar"] = tar_of(data)
    in_flight, most = 0, 0
    ask = tar_lookahead.HeaderLookahead._ask

    async def counted(self: Any, *arguments: Any) -> bytes:
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        try:
            return await ask(self, *arguments)
        finally:
            in_flight -= 1

    monkeypatch.setattr(tar_lookahead.HeaderLookahead, "_ask", counted)
    shards.requests.clear()
    opened = hr.open("s3://bucket/large.tar", store_options=shards.options)
    assert [opened[number]["jpg"] for number in (0, 450, 899)] == [data[f"{number:04}.jpg"] for number in (0, 450, 899)]
    assert 1 < most <= STREAMS
    assert shards.bytes_read() < 1.1 * len(shards.objects["large.tar"])


@pytest.mark.parametrize(("gap", "least", "most"), [(1 << 30, 1, 20), (1, 350, 1000)])
def test_prices_decide_between_requests_and_bytes(
    shards: StoreServer, monkeypatch: pytest.MonkeyPatch, gap: int, least: int, most: int
) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.01, 1e6, streams))
    shards.objects["priced.tar"] = tar_of({f"{number:04}.jpg": bytes(20_000) for number in range(400)})
    path = Stores(shards.options).path("s3://bucket/priced.tar")
    path.open().size()
    shards.requests.clear()
    build_indices([path], cache=None, gap_bytes=gap)
    assert least <= len(shards.requests) <= most
