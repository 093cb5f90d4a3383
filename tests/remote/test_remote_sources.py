"""Every source opened from a store gives what the same files give on this machine: samples, identity, batches."""

from __future__ import annotations

import csv
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loader_data import encode, photograph
from servers import SECRET, Answer, StoreServer
from test_remote_archives import tar_of

import headrace as hr
from headrace.data.remote.listing import Stores
from headrace.errors import ChangedError, NotFoundError, ReadError, UsageError
from headrace.fetch.objects import ExpectedSize, NumberedObject
from headrace.stores.link import LinkMeter
from headrace.stores.request_planning import LinkModel

COUNT = 12
CLASSES = ("cat", "dog", "emu é")
NAMES = [f"train/{CLASSES[number % 3]}/{number:02} x.jpg" for number in range(COUNT)]
PHOTOS = [encode(photograph(number, 30, 36), "JPEG") for number in range(COUNT)]
LABELS = [name.split("/")[1] for name in NAMES]


def write_rows(root: Path) -> None:
    """Manifests and annotations that name the photographs, and tables that hold them."""
    with open(root / "list.csv", "w", newline="") as file:
        csv.writer(file).writerows([("image", "label"), *zip(NAMES, LABELS, strict=True)])
    lines = [json.dumps({"image": name, "label": label}) for name, label in zip(NAMES, LABELS, strict=True)]
    (root / "list.jsonl").write_text("\n".join(lines))
    images = [{"id": number, "file_name": name} for number, name in enumerate(NAMES)]
    marks = [{"id": number, "image_id": number // 2, "caption": f"{number}"} for number in range(COUNT)]
    (root / "coco.json").write_text(json.dumps({"images": images, "annotations": marks}))
    pq.write_table(pa.table({"image": NAMES, "label": LABELS}), root / "paths.parquet", row_group_size=5)
    photos: list[dict[str, Any] | None] = [
        {"bytes": data, "path": name} for data, name in zip(PHOTOS, NAMES, strict=True)
    ]
    photos[3], photos[7] = None, {"bytes": None, "path": NAMES[7]}
    table = pa.table({"image": photos, "label": list(range(COUNT)), "words": [f"w{each}" for each in LABELS]})
    photos[7] = {"bytes": None, "path": f"../{NAMES[7]}"}
    deeper = table.set_column(0, "image", pa.array(photos))
    (root / "rows").mkdir()
    pq.write_table(deeper.slice(0, 7), root / "rows/train-00000-of-00002.parquet", row_group_size=3)
    pq.write_table(deeper.slice(7), root / "rows/train-00001-of-00002.parquet", row_group_size=3)
    with pa.ipc.new_stream(str(root / "stream.arrow"), table.schema) as stream:
        stream.write_table(table, max_chunksize=5)
    (root / "saved").mkdir()
    names = ["data-00000-of-00002.arrow", "data-00001-of-00002.arrow"]
    for name, part in zip(names, (deeper.slice(0, 7), deeper.slice(7)), strict=True):
        with pa.ipc.new_stream(str(root / "saved" / name), part.schema) as stream:
            stream.write_table(part, max_chunksize=5)
    (root / "saved/state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    features = {"image": {"_type": "Image"}, "label": {"_type": "Value", "dtype": "int64"}}
    (root / "saved/dataset_info.json").write_text(json.dumps({"features": features}))
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(str(root / "packed.arrow"), table.schema, options=packed) as file_of_arrow:
        file_of_arrow.write_table(table, max_chunksize=5)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("sources")
    for name, data in zip(NAMES, PHOTOS, strict=True):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    (root / "train/cat/.hidden").write_bytes(b"1")
    (root / "train/dog/notes.txt").write_bytes(b"1")
    write_rows(root)
    return root


@pytest.fixture
def remote(store: StoreServer, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    files = (path for path in folder.rglob("*") if path.is_file())
    store.objects.update((str(path.relative_to(folder)), path.read_bytes()) for path in files)
    return store


def batches(dataset: hr.Dataset) -> list[Any]:
    loader = hr.Loader(
        dataset, {"image": hr.Image()}, view=hr.RandomResizedCrop(16), batch_size=5, seed=1, output="numpy",
        threads=2, shuffle=True,
    )  # fmt: skip
    return [batch["image"] for batch in loader]


def assert_same(ours: hr.Dataset, theirs: hr.Dataset) -> None:
    assert ours.fingerprint == theirs.fingerprint
    assert list(ours.keys) == list(theirs.keys)
    assert (ours.classes, ours.skipped, ours.fields) == (theirs.classes, theirs.skipped, theirs.fields)
    for number in range(len(theirs)):
        mine, other = ours[number], theirs[number]
        assert mine.keys() == other.keys()
        assert all(np.array_equal(mine[name], other[name]) for name in other)
    for mine, other in zip(batches(ours), batches(theirs), strict=True):
        assert np.array_equal(mine, other)


@pytest.mark.long
def test_a_source_gives_what_it_gives_on_this_machine(remote: StoreServer, folder: Path) -> None:
    rows = ["list.csv", "list.jsonl", "paths.parquet", "rows/", "rows/train-*.parquet", "stream.arrow", "packed.arrow"]
    for where in ("train/", "train/**/*.jpg", "coco.json", *rows):  # one test: connections take a while to close
        opened = hr.open(f"s3://bucket/{where}", store_options=remote.options)
        local = hr.open(str(folder / where))
        assert_same(opened, local)
        data = pickle.dumps(opened[2:])
        assert SECRET.encode() not in data
        sent = pickle.loads(data)
        assert sent.fingerprint == local[2:].fingerprint


def test_what_save_to_disk_wrote_is_its_arrow_files(remote: StoreServer, folder: Path) -> None:
    opened = hr.open("s3://bucket/saved/", store_options=remote.options)
    assert_same(opened, hr.open(folder / "saved/data-*.arrow"))
    here = hr.open(folder / "saved")
    held = [at for at in range(COUNT) if at != 7]  # which names a file instead
    assert [opened[at] for at in held] == [here[at] for at in held]


@pytest.mark.long
def test_a_prefix_needs_no_slash_and_takes_classes(remote: StoreServer, folder: Path) -> None:
    options: dict[str, Any] = {"store_options": remote.options}
    assert_same(hr.open("s3://bucket/train", **options), hr.open(folder / "train"))
    chosen = ["emu é", "cat"]
    assert_same(hr.open("s3://bucket/train", classes=chosen, **options), hr.open(folder / "train", classes=chosen))
    with pytest.raises(NotFoundError, match=r"s3://bucket/nothing, bytes .*could not be read"):
        hr.open("s3://bucket/nothing", **options)
    with pytest.raises(UsageError, match="a web server has no listing"):
        hr.open(remote.url("train/"))


def test_a_listing_pins_each_image(remote: StoreServer) -> None:
    opened = hr.open("s3://bucket/train/", store_options=remote.options)
    before = len(remote.requests)
    list(batches(opened))
    seen = remote.requests[before:]
    assert {one.method for one in seen} == {"GET"}  # sizes are known
    assert len({(one.key, one.start, one.end) for one in seen}) == COUNT  # a slow one is sent twice
    remote.objects[NAMES[4]] = PHOTOS[5]
    with pytest.raises(ChangedError, match=r"s3://bucket/train/dog/04 x\.jpg, bytes 0 to \d+"):
        batches(opened)
    assert hr.open("s3://bucket/train/", store_options=remote.options).fingerprint == opened.fingerprint
    del remote.objects[NAMES[4]]
    with pytest.raises(NotFoundError, match=r"s3://bucket/train/dog/04 x\.jpg, bytes 0 to \d+"):
        batches(opened)


def test_addresses_in_columns(remote: StoreServer, folder: Path, tmp_path: Path) -> None:
    texts = [
        f"s3://bucket/{name}" if number % 3 == 0 else remote.url(name) if number % 3 == 1 else str(folder / name)
        for number, name in enumerate(NAMES)
    ]
    options: dict[str, Any] = {"store_options": remote.options}
    with open(tmp_path / "mixed.csv", "w", newline="") as file:
        csv.writer(file).writerows([("image", "label"), *zip(texts, LABELS, strict=True)])
    local = hr.open(folder / "list.csv")
    for opened in (
        hr.open(tmp_path / "mixed.csv", store_options=remote.options | {"client_options": {"allow_http": True}}),
        hr.open(list(zip(texts, LABELS, strict=True)), **options),
    ):
        assert [opened.read("image", number) for number in range(COUNT)] == PHOTOS
        assert [len(batch) for batch in batches(opened)] == [5, 5, 2]
        for mine, other in zip(batches(opened), batches(local), strict=True):
            assert np.array_equal(mine, other)
        assert pickle.loads(pickle.dumps(opened)).fingerprint == opened.fingerprint
    images = hr.open([f"s3://bucket/{name}" for name in NAMES], **options)
    assert images.key(0) == f"s3://bucket/{NAMES[0]}"
    assert [images.read("image", number) for number in range(COUNT)] == PHOTOS


@pytest.mark.parametrize("order", ["global", hr.Windowed(block_samples=3, window_blocks=2)])
def test_an_image_of_unknown_size_takes_one_request(remote: StoreServer, order: Any) -> None:
    addresses = [f"s3://bucket/{name}" for name in NAMES]
    opened = hr.open({"image": addresses}, store_options=remote.options)
    loader = hr.Loader(
        opened,
        {"image": hr.Image()},
        view=hr.RandomResizedCrop(16),
        batch_size=4,
        shuffle=True,
        order=order,
        output="numpy",
        threads=2,
    )
    remote.requests.clear()
    local = hr.Loader(
        hr.open({"image": PHOTOS}),
        {"image": hr.Image()},
        view=hr.RandomResizedCrop(16),
        batch_size=4,
        shuffle=True,
        output="numpy",
    )
    for epoch in range(2):
        remote.requests.clear()
        loader.set_epoch(epoch)
        local.set_epoch(epoch)
        found = [batch["image"] for batch in loader]
        if order == "global":
            assert all(np.array_equal(*pair) for pair in zip(found, (each["image"] for each in local), strict=True))
        assert [seen.method for seen in remote.requests] == ["GET"] * COUNT
        stats = loader.stats().fetch
        assert stats is not None
        assert stats.counts.requests == COUNT
        assert stats.wanted_bytes == sum(map(len, PHOTOS))
        assert stats.held_bytes == 0
    remote.fail_first(3, Answer())
    assert len(list(loader)) == 3
    remote.objects[NAMES[5]] += b" "
    with pytest.raises(ChangedError, match="05 x"):
        list(loader)


def test_images_of_unknown_size_are_cached(remote: StoreServer) -> None:
    opened = hr.open({"image": [f"s3://bucket/{name}" for name in NAMES]}, store_options=remote.options)
    loader = hr.Loader(
        opened, {"image": hr.Image()}, view=hr.CenterCrop(16), batch_size=4, output="numpy", cache="ram:64MB"
    )
    first = [batch["image"] for batch in loader]
    remote.requests.clear()
    loader.set_epoch(1)
    assert all(np.array_equal(*pair) for pair in zip(first, (each["image"] for each in loader), strict=True))
    assert remote.requests == []


def test_memory_for_objects_of_unknown_size_is_bounded() -> None:
    """However large the later ones are, a request reads at most four times what the plan counts."""
    sizes = ExpectedSize()
    for _ in range(15):
        sizes.add(1000)
        assert sizes.bytes(1 << 20) == 1 << 20, "too few to expect anything of others"
    sizes.add(1000)
    assert sizes.bytes(1 << 20) == 64 << 10
    for _ in range(16):
        sizes.add(399_000)
    assert sizes.bytes(1 << 20) == 200_000
    path = Stores({"region": "r"}).path("s3://bucket/a.jpg")
    for expected, most in ((200_000, 800_000), (10 << 20, 16 << 20)):
        request = NumberedObject(0, path, expected).request(3)
        assert (request.start, request.stop, request.need) == (0, most, 3)
        assert request.may_end
        assert request.with_rest
    for _ in range(99):
        sizes.add(1 << 30)
    assert sizes.bytes(1 << 20) == 16 << 20


def test_a_large_image_of_unknown_size_is_read_to_its_end(remote: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda _, streams, now_s: LinkModel(0.1, 1e6, streams))
    large = encode(photograph(1, 1900, 1400), "PNG")
    assert len(large) > 4 << 20
    remote.objects |= {"large/0.png": large, "large/1.jpg": PHOTOS[0], "large/empty.jpg": b""}
    names = [f"s3://bucket/large/{name}" for name in ("1.jpg", "0.png")]
    opened = hr.open({"image": names}, store_options=remote.options)
    remote.requests.clear()
    (batch,) = hr.Loader(opened, {"image": hr.Image()}, view=hr.Resize((16, 16)), batch_size=2, output="numpy")
    (same,) = hr.Loader({"image": [PHOTOS[0], large]}, {"image": hr.Image()}, view=hr.Resize((16, 16)), batch_size=2,
                        output="numpy")  # fmt: skip
    assert np.array_equal(batch["image"], same["image"])
    ranges = sorted((seen.key, seen.start, seen.end) for seen in remote.requests if seen.method == "GET")
    assert ranges == [
        ("large/0.png", 0, 4 << 20),
        ("large/0.png", 4 << 20, len(large)),
        ("large/1.jpg", 0, len(PHOTOS[0])),  # creating the Loader looked at the first
    ]
    empty = hr.open({"image": ["s3://bucket/large/empty.jpg", *names]}, store_options=remote.options)
    assert (
        len(list(hr.Loader(empty, {"image": hr.Image()}, view=hr.Resize((16, 16)), batch_size=3, output="numpy"))) == 1
    )


def test_signatures_of_addresses_are_not_shown(remote: StoreServer) -> None:
    signed = [remote.url(name, user="me:pass", query="sig=SECRET") for name in [*NAMES[:2], "gone.jpg"]]
    opened = hr.open([(each, number) for number, each in enumerate(signed)])
    assert opened.read("image", 1) == PHOTOS[1]
    with pytest.raises(NotFoundError) as caught:
        opened.read("image", 2)
    for shown in (str(caught.value), repr(opened), opened.key(1), str(opened.paths("image", np.arange(3)))):
        assert "SECRET" not in shown
        assert "pass" not in shown


def test_addresses_that_differ_in_their_query_are_other_objects(remote: StoreServer) -> None:
    queries = [f"id={number}" for number in range(COUNT)]
    remote.objects |= {f"get?{query}": photo for query, photo in zip(queries, PHOTOS, strict=True)}
    opened = hr.open([(remote.url("get", query=query), 0) for query in queries])
    assert [opened.read("image", number) for number in range(COUNT)] == PHOTOS
    local = hr.open({"image": PHOTOS})
    for mine, other in zip(batches(opened), batches(local), strict=True):
        assert np.array_equal(mine, other)
    for number, query in enumerate(queries):
        remote.objects[f"tar?{query}"] = tar_of({f"{number}.cls": b"%d" % number})
    tars = hr.open([remote.url("tar", query=query) for query in queries])
    assert tars.column("cls") == [b"%d" % number for number in range(COUNT)]


def test_only_needed_columns_of_parquet_are_read(remote: StoreServer) -> None:
    rows = 4000
    wide = pa.table({"other": [bytes(2000) + str(row).encode() for row in range(rows)], "label": range(rows)})
    out = pa.BufferOutputStream()
    pq.write_table(wide, out, row_group_size=1000, compression="none", use_dictionary=False)
    remote.objects["wide.parquet"] = out.getvalue().to_pybytes()
    remote.requests.clear()
    opened = hr.open("s3://bucket/wide.parquet", columns=["label"], store_options=remote.options)
    assert opened.labels().tolist() == list(range(rows))
    assert remote.bytes_read() < 200_000 < len(remote.objects["wide.parquet"])
    remote.requests.clear()
    again = hr.open("s3://bucket/wide.parquet", columns=["label"], store_options=remote.options)
    assert again.fingerprint == opened.fingerprint
    assert remote.bytes_read() <= 1024  # the rest is in the cache folder


def test_a_manifest_in_a_store_names_members_of_tars_there(remote: StoreServer, folder: Path) -> None:
    import io
    import tarfile

    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in NAMES:
            tar.add(folder / name, name)
    remote.objects["shards/a.tar"] = out.getvalue()
    opened = hr.open("s3://bucket/list.csv", root="s3://bucket/shards/*.tar", store_options=remote.options)
    for mine, other in zip(batches(opened), batches(hr.open(folder / "list.csv")), strict=True):
        assert np.array_equal(mine, other)


def test_whole_objects_are_compared_with_their_hash(remote: StoreServer) -> None:
    """A proxy answers with as many other bytes, and with the object's ETag."""
    addresses = [f"s3://bucket/{name}" for name in NAMES]

    def opened(**given: Any) -> hr.Dataset:
        return hr.open({"image": addresses}, store_options=remote.options, **given)

    images = opened(verify=True)
    damaged = Answer(act="html")
    remote.fail_first(3, damaged)
    assert [images.read("image", number) for number in range(COUNT)] == PHOTOS
    loader = hr.Loader(opened(verify=True), {"image": hr.Image()}, view=hr.CenterCrop(16), batch_size=4, output="numpy")
    remote.fail_first(3, damaged)
    assert len(list(loader)) == 3
    counts = loader.stats().fetch
    assert counts is not None
    assert counts.counts.retries >= 3  # the server also closes connections
    assert pickle.loads(pickle.dumps(images)).table.columns.keys() == {"image"}
    remote.fail_first(100, damaged)
    assert opened().read("image", 1) != PHOTOS[1]
    with pytest.raises(ReadError, match=r"01 x\.jpg.* do not have the hash .* at each of \d attempts"):
        opened(verify=True).read("image", 1)
    remote.fault = None
    remote.objects["t.tar"] = tar_of({"0.jpg": PHOTOS[0]})
    with pytest.raises(UsageError, match="verify= needs objects in stores that are read whole"):
        hr.open("s3://bucket/t.tar", store_options=remote.options, verify=True)
    with pytest.raises(UsageError, match="verify: expected True or False"):
        opened(verify=1)
