"""Columns, labels, sizes and JSON members of samples in stores: what local files give, in few requests."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from servers import Answer, StoreServer
from test_remote_archives import tar_of, zip_of

import headrace as hr
from headrace.data import image_sizes
from headrace.errors import ChangedError, DatasetError, NotFoundError, ReadError
from headrace.stores import LinkModel
from headrace.stores.link import LinkMeter

SAMPLES = 530
"""More than a block of bulk reads has."""


def picture(number: int, format: str = "JPEG", **options: Any) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (8 + number % 31, 8 + number % 17), (number % 251, 9, 9)).save(target, format, **options)
    return target.getvalue()


def members() -> dict[str, bytes]:
    """Samples whose images differ in size; some have a long EXIF, another format, or are damaged."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "d" * 60_000
    odd = {
        7: picture(7, exif=exif),
        8: picture(8, "WEBP"),
        9: picture(9, "PNG"),
        10: b"\xff\xd8\xff\xe0 no image",
        520: picture(520, exif=exif),
        521: picture(521, "GIF"),
    }
    found: dict[str, bytes] = {}
    for number in range(SAMPLES):
        found[f"{number:04}.jpg"] = odd.get(number) or picture(number) + bytes(1500)
        found[f"{number:04}.cls"] = str(number % 9).encode()
        found[f"{number:04}.json"] = json.dumps({"caption": f"no. {number}"}).encode()
    return found


@pytest.fixture(scope="module")
def archives() -> dict[str, bytes]:
    found = members()
    return {"a.tar": tar_of(found), "a.zip": zip_of(dict(list(found.items())[:90]))}


@pytest.fixture
def opened(
    archives: dict[str, bytes], store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[hr.Dataset, hr.Dataset]]:
    """The same tar, zip and loose images, in a store and on the disk."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    # As measured far away, whatever this machine's loopback is like now.
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.02, 1e8, streams))
    found = {}
    for name, data in archives.items():
        (tmp_path / name).write_bytes(data)
        store.objects[name] = data
        found[name] = (hr.open(f"s3://bucket/{name}", store_options=store.options), hr.open(tmp_path / name))
    (tmp_path / "p").mkdir()
    for number in range(40):
        store.objects[f"p/{number}.jpg"] = picture(number)
        (tmp_path / f"p/{number}.jpg").write_bytes(picture(number))
    rows = {"image": [f"{number}.jpg" for number in range(40)]}
    found["loose"] = (
        hr.open(rows, root="s3://bucket/p", store_options=store.options),
        hr.open(rows, root=tmp_path / "p"),
    )
    store.requests.clear()
    return found


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", ["a.tar", "a.zip"])
def test_columns_and_labels(opened: dict[str, Any], store: StoreServer, name: str) -> None:
    remote, local = opened[name]
    assert remote.labels("cls").tolist() == local.labels("cls").tolist()
    assert len(store.requests) <= 12, "members of neighbours come together"
    assert remote[3:].select([5, 1, 1]).column("jpg") == local[3:].select([5, 1, 1]).column("jpg")
    store.requests.clear()
    assert remote.column("json") == local.column("json")
    assert len(store.requests) <= 12


@pytest.mark.parametrize("exif", [False, True])
@pytest.mark.parametrize("name", ["a.tar", "a.zip", "loose"])
@pytest.mark.one_in(3)
def test_sizes(opened: dict[str, Any], store: StoreServer, name: str, exif: bool) -> None:
    remote, local = opened[name]
    expected = image_sizes(local, "image", exif=exif)
    assert np.array_equal(image_sizes(remote, "image", exif=exif), expected)
    assert expected.any(axis=1).sum() == len(local) - (name != "loose")  # one is damaged
    asked = {(seen.key, seen.start) for seen in store.requests}  # once, though a slow one may be hedged
    assert len(asked) <= (40 if name == "loose" else 12), "one per loose image, else neighbours at once"


def test_json_members(opened: dict[str, Any], store: StoreServer) -> None:
    before = len(store.requests)
    found = hr.open("s3://bucket/a.tar", store_options=store.options, columns=["jpg", "json.caption"])
    assert found.column("json.caption") == [f"no. {number}" for number in range(SAMPLES)]
    assert len(store.requests) - before <= 12
    assert found.filter(lambda caption: caption == "no. 9", "json.caption").keys[0] == "0009"


@pytest.mark.long
def test_what_cannot_be_read(opened: dict[str, Any], store: StoreServer, archives: dict[str, bytes]) -> None:
    remote, _ = opened["a.tar"]
    store.fault = lambda seen: Answer(403, "AccessDenied") if (seen.start or 0) > 500_000 else None
    with pytest.raises(ReadError, match=r"s3://bucket/a\.tar, bytes \d+ to \d+: could not be read: .*403"):
        remote.column("jpg")
    store.fault = None
    store.objects["a.tar"] = archives["a.tar"][:-1024] + bytes(2048)
    for read in (lambda: remote.labels("cls"), lambda: image_sizes(remote, "image")):
        with pytest.raises(ChangedError, match=r"s3://bucket/a\.tar"):
            read()
    loose, _ = opened["loose"]
    del store.objects["p/33.jpg"]
    with pytest.raises(NotFoundError, match=r"s3://bucket/p/33\.jpg"):
        image_sizes(loose, "image")


def test_members_that_are_not_there(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    store.objects["some.tar"] = tar_of({"1.jpg": b"x", "1.cls": b"1", "2.jpg": b"y", "3.cls": b""})
    some = hr.open("s3://bucket/some.tar", store_options=store.options)
    assert some.column("cls") == [b"1", None, b""]
    with pytest.raises(KeyError, match="sample '2' has no 'cls'"):
        some.labels("cls")
    store.objects["bad.tar"] = tar_of({"1.jpg": b"x", "1.json": b"["})
    with pytest.raises(DatasetError, match="expected a JSON object"):
        hr.open("s3://bucket/bad.tar", store_options=store.options, columns=["json.a"])


def test_blocks_are_bounded_by_bytes(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from headrace.data.remote import bulk_reads

    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(bulk_reads, "_BLOCK_BYTES", 10_000)
    data = {f"{number:02}.txt": bytes([number]) * (900 * number) for number in range(30)}
    store.objects["t.tar"] = tar_of(data)
    opened = hr.open("s3://bucket/t.tar", store_options=store.options)
    with bulk_reads.read_in_bulk(opened.files("txt"), lambda rows: opened.locate("txt", rows), len(opened)) as blocks:
        held = [(block.positions.tolist(), sum(map(len, block.held()[0]))) for block in blocks]
    assert [row for rows, _ in held for row in rows] == list(range(30))
    assert all(size <= 10_000 + 30_000 for _, size in held)
    assert len(held) > 10
    assert opened.column("txt") == list(data.values())
