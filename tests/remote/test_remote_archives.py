"""Archives in stores: the same samples and fingerprint as of local files, read by ranges, without patterns of tars."""

from __future__ import annotations

import io
import json
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest
from servers import KEY_ID, SECRET, Answer, StoreServer

import headrace as hr
from headrace.errors import ChangedError, DatasetError, NotFoundError, OutsideRootError, ReadError, UsageError
from headrace.pack import PackOptions, pack

MEMBERS = {f"{number:03}.{kind}": (kind * (200 + number)).encode() for number in range(12) for kind in ("jpg", "cls")}


def tar_of(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as tar:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return target.getvalue()


def zip_of(members: dict[str, bytes], *, comment: bytes = b"") -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        archive.comment = comment
    return target.getvalue()


@pytest.fixture
def shards(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    for shard in range(3):
        data = tar_of({f"{shard}{name}": data for name, data in MEMBERS.items()})
        store.objects[f"a b/é/{shard:03}.tar"] = data
        (tmp_path / f"{shard:03}.tar").write_bytes(data)
    return store


@pytest.mark.parametrize("address", ["s3://bucket/a b/é/*.tar", "s3://bucket/a b/é/{000..002}.tar", "web"])
def test_tars_give_what_local_ones_give(shards: StoreServer, tmp_path: Path, address: str) -> None:
    local = hr.open(tmp_path / "*.tar")
    web = [shards.url(key) for key in shards.objects]
    opened = hr.open(web) if address == "web" else hr.open(address, store_options=shards.options)
    assert opened.fingerprint == local.fingerprint
    assert list(opened.keys) == list(local.keys)
    assert [opened[number] for number in (0, 17, 35)] == [local[number] for number in (0, 17, 35)]
    assert opened.column("cls") == local.column("cls")
    assert opened[30:].read("jpg", -1) == local.read("jpg", -1)
    files = opened.files("jpg")
    assert files.is_remote
    assert [str(files.object(number)).encode() for number in range(3)] == [files.path(number) for number in range(3)]
    assert files.object(1).open().size() == len(shards.objects["a b/é/001.tar"])
    # A second opening asks for no header again.
    before = len(shards.requests)
    again = hr.open(web) if address == "web" else hr.open(address, store_options=shards.options)
    assert again.fingerprint == local.fingerprint
    assert len(shards.requests) - before <= 4


def test_only_headers_are_read_of_large_members(shards: StoreServer) -> None:
    large = tar_of({f"{number}.jpg": bytes(700_000) for number in range(6)})
    shards.objects["large.tar"] = large
    shards.requests.clear()
    assert len(hr.open("s3://bucket/large.tar", store_options=shards.options)) == 6
    asked = [seen for seen in shards.requests if seen.start is not None]
    assert len(asked) <= 6 + 3
    assert shards.bytes_read() < 64 << 10
    small = tar_of({f"{number:04}.cls": b"1" for number in range(2000)})
    shards.objects["small.tar"] = small
    shards.requests.clear()
    assert len(hr.open("s3://bucket/small.tar", store_options=shards.options)) == 2000
    assert len(shards.requests) <= 12  # pieces that double, for two megabytes of headers


@pytest.mark.parametrize("comment", [b"", b"c" * 60_000])
def test_a_zip_is_opened_by_its_tail(shards: StoreServer, tmp_path: Path, comment: bytes) -> None:
    members = {f"{name}/{number:04}.jpg": bytes([number % 251]) * 9 for name in ("cat", "dog") for number in range(900)}
    data = zip_of({"big.bin.txt": bytes(range(256)) * 2000} | members, comment=comment)
    shards.objects["all.zip"] = data
    (tmp_path / "all.zip").write_bytes(data)
    opened = hr.open("s3://bucket/all.zip", store_options=shards.options, classes=True)
    local = hr.open(tmp_path / "all.zip", classes=True)
    assert opened.fingerprint == local.fingerprint
    assert opened.classes == ("cat", "dog")
    assert opened[901] == local[901]
    shards.objects["broken.zip"] = data[:-60_100]
    with pytest.raises(DatasetError, match=r"s3://bucket/broken\.zip"):
        hr.open("s3://bucket/broken.zip", store_options=shards.options)


def test_a_dataset_travels_without_credentials(shards: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = hr.open("s3://bucket/a b/é/*.tar", store_options=shards.options)
    sent = pickle.dumps(opened)
    assert KEY_ID.encode() not in sent
    assert SECRET.encode() not in sent
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "THERE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    there = pickle.loads(sent)
    assert there.fingerprint == opened.fingerprint
    assert there[20] == opened[20]


def test_a_store_is_not_staged_and_the_error_says_what_keeps_it(shards: StoreServer, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"stage: .* lies in a store.*cache='disk:FOLDER:SIZE', which keeps what was"):
        hr.open("s3://bucket/a b/é/*.tar", store_options=shards.options, stage=tmp_path / "stage")
    (tmp_path / "rows.csv").write_text("image\n0.jpg\n")
    with pytest.raises(UsageError, match=r"stage: .* s3://bucket/photos lies in a store"):
        hr.open(tmp_path / "rows.csv", root="s3://bucket/photos", stage=tmp_path / "stage")
    assert not (tmp_path / "stage").exists()


def test_a_replaced_tar_is_named(shards: StoreServer) -> None:
    opened = hr.open("s3://bucket/a b/é/*.tar", store_options=shards.options)
    assert opened[0]["cls"]
    shards.objects["a b/é/000.tar"] = tar_of(MEMBERS)
    with pytest.raises(ChangedError, match=r"s3://bucket/a b/é/000\.tar, bytes"):
        opened[0]
    # Opened again, it is another dataset: the index in the cache is that of the other content.
    assert hr.open("s3://bucket/a b/é/*.tar", store_options=shards.options).fingerprint != opened.fingerprint


def test_transport_errors_name_the_request(shards: StoreServer) -> None:
    opened = hr.open("s3://bucket/a b/é/*.tar", store_options=shards.options, retry_for=0.1)
    shards.fault = lambda _: Answer(503)
    with pytest.raises(ReadError, match=r"é/000.tar, bytes \d+ to \d+: could not be read: .*SlowDown"):
        opened[0]


def test_what_is_no_archive_is_refused(shards: StoreServer, tmp_path: Path) -> None:
    shards.objects["paper.pdf"] = b"%PDF-1.7"
    with pytest.raises(DatasetError, match=r"s3://bucket/paper\.pdf: expected a folder, tars, .* got a PDF"):
        hr.open("s3://bucket/paper.pdf", store_options=shards.options)
    with pytest.raises(UsageError, match="expected addresses in stores alone"):
        hr.open(["s3://bucket/a b/é/000.tar", str(tmp_path / "000.tar")], store_options=shards.options)
    with pytest.raises(UsageError, match="store_options: expected none"):
        hr.open(tmp_path / "000.tar", store_options=shards.options)


def test_a_manifest_names_objects_below_a_prefix(shards: StoreServer, tmp_path: Path) -> None:
    images = {f"x y/{number}é.jpg": b"\xff\xd8\xff" + bytes([number]) * 99 for number in range(4)}
    shards.objects.update({f"photos/{name}": data for name, data in images.items()})
    (tmp_path / "list.csv").write_text("image,label\n" + "".join(f"{name},{name[:1]}\n" for name in images))
    coco = {"images": [{"id": number, "file_name": name} for number, name in enumerate(images)]}
    (tmp_path / "coco.json").write_text(json.dumps(coco))
    for where in ("list.csv", "coco.json"):
        opened = hr.open(tmp_path / where, root="s3://bucket/photos/", store_options=shards.options)
        assert [opened.read("image", number) for number in range(4)] == list(images.values())
        assert opened.where("image", 0) == ("s3://bucket/photos/x y/0é.jpg", None)
        opened.expect_files("image")
    rows = hr.open({"image": [*images, "../list.csv"]}, root="s3://bucket/photos", store_options=shards.options)
    assert rows.read("image", 3) == images["x y/3é.jpg"]
    with pytest.raises(OutsideRootError):
        rows.read("image", 4)
    elsewhere = hr.open(tmp_path / "list.csv", root="s3://bucket/elsewhere", store_options=shards.options)
    with pytest.raises(NotFoundError, match="got none of 4 looked for below s3://bucket/elsewhere"):
        elsewhere.expect_files("image")


@pytest.mark.parametrize("status", [403, 404])
def test_tars_named_as_shards_are_tars_where_no_plan_may_be_seen(
    store: StoreServer, photos: Path, tmp_path: Path, status: int
) -> None:
    pack(hr.open(photos), tmp_path / "pack", PackOptions())
    name = "shard-000000.tar"
    store.objects[name] = (tmp_path / "pack" / name).read_bytes()
    store.fault = lambda seen: Answer(status, "AccessDenied") if seen.key.endswith("pack.json") else None
    data = hr.open(f"s3://bucket/{name}", store_options=store.options)
    assert list(data.columns) == ["image", "label", "cls", "jpg"]
    assert sum(seen.key.endswith("pack.json") for seen in store.requests) == 1
