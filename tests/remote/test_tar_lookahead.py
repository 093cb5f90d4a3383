"""Headers of one large tar asked for ahead: fewer waits, and the index that a scan from the front makes."""

from __future__ import annotations

import io
import random
import tarfile
from pathlib import Path

import pytest
from servers import StoreServer
from test_remote_archives import tar_of

import headrace as hr
from headrace.data.archives import tar_lookahead
from headrace.data.archives.tar_index import build_tar_index
from headrace.data.archives.tar_lookahead import HeaderLookahead, _after, _next_header
from headrace.data.remote.listing import Stores
from headrace.stores.link import LinkMeter
from headrace.stores.request_planning import LinkModel


def tar_within(seed: int, format: int) -> bytes:
    """Members of mixed sizes: tars as data, among them such as begin in no block, long names, links and folders."""
    draw = random.Random(seed)
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format) as tar:
        for number in range(160):
            name = f"{'é' if number % 9 == 0 else 'e'}{number:04}" + "n" * (180 if number % 31 == 0 else 0)
            data = draw.randbytes(draw.choice((0, 300, 9000, 24_000)))
            if number % 5 == 0:  # what looks like the tar itself
                data = tar_of({f"false/{number}.{each}.jpg": bytes(draw.randrange(9000)) for each in range(4)})
                data = data[:-1024] if number % 2 else b"x" * 100 + data
            info = tarfile.TarInfo(f"{name}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
            if number % 50 == 0:
                link = tarfile.TarInfo(f"{name}.link")
                link.type, link.linkname = tarfile.SYMTYPE, f"{name}.jpg"
                tar.addfile(link)
    return target.getvalue()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_data_that_holds_headers_is_no_member(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: int
) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.001, 1e6, streams))
    data = tar_within(format, format)
    store.objects["t.tar"] = data
    (tmp_path / "t.tar").write_bytes(data)
    remote, outline = build_tar_index(Stores(store.options).path("s3://bucket/t.tar"))
    local, same = build_tar_index(str(tmp_path / "t.tar"))
    assert outline == same
    assert remote.keys() == local.keys()
    assert all((remote[name] == local[name]).all() for name in local)
    with tarfile.open(tmp_path / "t.tar") as tar:
        assert remote["members.offset"].tolist() == [member.offset_data for member in tar]


def test_a_header_that_leads_back_leads_nowhere() -> None:
    member = tarfile.TarInfo("a")
    member.size = -1024
    back = member.tobuf(tarfile.GNU_FORMAT)
    member.size = 512
    assert _next_header(back, 0) is None
    assert _after(0, member.tobuf(tarfile.GNU_FORMAT) + bytes(512) + back) is None
    assert _next_header(member.tobuf(tarfile.GNU_FORMAT), 0) == 1024


@pytest.mark.long
def test_headers_far_apart_are_asked_for_side_by_side(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.001, 1e6, streams))
    draw = random.Random(3)
    data = {f"{number:04}.jpg": bytes(draw.randrange(6000, 18_000)) for number in range(600)}
    store.objects["t.tar"] = tar_of(data)
    in_flight, most = 0, 0
    ask = HeaderLookahead._ask

    async def counted(self, *arguments):
        nonlocal in_flight, most
        in_flight += 1
        most = max(most, in_flight)
        try:
            return await ask(self, *arguments)
        finally:
            in_flight -= 1

    monkeypatch.setattr(HeaderLookahead, "_ask", counted)
    opened = hr.open("s3://bucket/t.tar", store_options=store.options)
    assert list(opened.keys) == [name.removesuffix(".jpg") for name in data]
    assert most >= 8, "headers are followed in many places"
    assert len(store.requests) < 600 * 1.2


def test_what_is_passed_counts_the_headers_found_ahead(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the time and bytes left are estimated at many times what they are."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.001, 1e6, streams))
    store.objects["t.tar"] = tar_of({f"{number:04}.jpg": bytes(20_000) for number in range(800)})
    seen: list[tuple[int, int]] = []
    monkeypatch.setattr(tar_lookahead, "note_scan", lambda offset, size: seen.append((offset, size)))
    assert len(hr.open("s3://bucket/t.tar", store_options=store.options)) == 800
    size, read, far = len(store.objects["t.tar"]), 0, 0
    for offset, more in seen:
        read, far = read + more, max(far, offset)
        assert far <= size
        if far > size / 4:
            assert read * size / far < 0.5 * size, "a third is read in all"
