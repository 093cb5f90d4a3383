"""Datasets of the Hub by huggingface_hub's own resolution, from a Hub on loopback: what is read, and who is told."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import pickle
import re
import threading
import traceback
import zipfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hub_server import TOKEN, HubServer, Repository, running_hub
from huggingface_hub.utils import close_session
from loader_data import encode, photograph
from processes import run_python
from servers import StoreServer
from test_remote_archives import tar_of

import headrace as hr
from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import ObjectPath, write_object
from headrace.errors import NotFoundError, ReadError, UsageError
from headrace.stores import hub as hub_stores
from headrace.stores import object_content

SHARDS = {
    f"data/a b/é-{shard}.tar": tar_of(
        {f"{shard}{at}.{kind}": (kind * (1 + at)).encode() for at in range(5) for kind in ("cls", "jpg")}
    )
    for shard in range(4)
}
SMALL = b"short enough for git itself"


@pytest.fixture(scope="session")
def serving(running: StoreServer) -> Iterator[HubServer]:
    with running_hub(running) as server:
        yield server


@pytest.fixture
def hub(serving: HubServer, store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A Hub with one dataset. Nobody is logged in."""
    serving.clear()
    serving.datasets["me/set"] = Repository()
    serving.datasets["me/set"].commit(SHARDS | {"README.md": SMALL})
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    yield serving
    close_session()


def one(hub: HubServer, text: str, **options: Any) -> ObjectPath:
    return Stores({"endpoint": hub.endpoint, **options}).path(f"hf://datasets/{text}")


def opened_at(hub: HubServer, text: str, **options: Any) -> hr.Dataset:
    return hr.open(f"hf://datasets/{text}", store_options={"endpoint": hub.endpoint, **options})


def asked(hub: HubServer, word: str) -> int:
    return sum(word in each.path for each in hub.asked)


def test_tars_are_those_of_the_same_files_here(hub: HubServer, tmp_path: Path) -> None:
    for key, data in SHARDS.items():
        (tmp_path / key.rpartition("/")[2]).write_bytes(data)
    local = hr.open(tmp_path / "*.tar")
    opened = opened_at(hub, "me/set/data/**/*.tar")
    assert opened.fingerprint == local.fingerprint
    assert list(opened.keys) == list(local.keys)
    assert [opened[at] for at in range(20)] == [local[at] for at in range(20)]
    # The commit once, a listing of three pages, and each file's place once.
    assert [asked(hub, word) for word in ("/set", "/tree/", "/resolve/")] == [7, 2, 4]
    sha = hub.datasets["me/set"].revisions["main"]
    assert opened.files("cls").path(1) == f"hf://datasets/me/set@{sha}/data/a b/é-1.tar".encode()
    named = opened_at(hub, "me/set/data/a b/é-{0..3}.tar")
    assert named.fingerprint == local.fingerprint
    assert asked(hub, "/tree/") == 2


def test_zips_are_those_of_the_same_files_here(hub: HubServer, tmp_path: Path) -> None:
    images = {f"{at}.jpg": encode(photograph(at, 30, 30), "JPEG") for at in range(6)}
    for part in range(2):
        with zipfile.ZipFile(tmp_path / f"{part}.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            for name in list(images)[part::2]:
                archive.writestr(name, images[name])
    hub.datasets["me/zips"] = Repository()
    hub.datasets["me/zips"].commit({f"data/{part}.zip": (tmp_path / f"{part}.zip").read_bytes() for part in range(2)})
    local, opened = hr.open(tmp_path / "*.zip"), opened_at(hub, "me/zips/data/*.zip")
    assert opened.fingerprint == local.fingerprint
    assert list(opened.keys) == list(local.keys)
    assert [opened.read("image", at) for at in range(6)] == [local.read("image", at) for at in range(6)]


def test_parquet_with_images_as_the_hub_stores_them(hub: HubServer) -> None:
    images = [encode(photograph(at, 30, 30), "JPEG") for at in range(6)]
    rows = pa.table({"image": [{"bytes": each, "path": "x.jpg"} for each in images], "label": [*range(6)]})
    target = io.BytesIO()
    pq.write_table(rows, target, row_group_size=2)
    hub.datasets["me/rows"] = Repository()
    hub.datasets["me/rows"].commit({"data/train-00000-of-00001.parquet": target.getvalue()}, "refs/convert/parquet")
    opened = opened_at(hub, "me/rows@~parquet/data/train-*.parquet")
    assert [opened.read("image", at) for at in range(6)] == images
    assert opened.labels().tolist() == [*range(6)]


ROWS = {"data/train-00000-of-00002.parquet": (0, 3), "data/train-00001-of-00002.parquet": (3, 6)}


def table_bytes(first: int, stop: int) -> bytes:
    target = io.BytesIO()
    pq.write_table(
        pa.table({"image": [bytes([at]) * 900 for at in range(first, stop)], "label": [*range(first, stop)]}), target
    )
    return target.getvalue()


def test_a_whole_repository_of_one_split_is_opened(hub: HubServer) -> None:
    files = {name: table_bytes(*rows) for name, rows in ROWS.items()}
    hub.datasets["me/rows"] = Repository()
    hub.datasets["me/rows"].commit({**files, "README.md": SMALL, ".gitattributes": b"x"})
    for address in ("me/rows", "me/rows/", "me/rows@main"):
        opened = opened_at(hub, address)
        assert opened.labels().tolist() == [*range(6)]
        assert opened.read("image", 4) == b"\4" * 900
    assert len(opened_at(hub, "me/set")) == 20  # its tars


def test_a_repository_of_several_splits_says_what_to_open(hub: HubServer) -> None:
    files = {name: table_bytes(*rows) for name, rows in ROWS.items()}
    hub.datasets["me/splits"] = Repository()
    hub.datasets["me/splits"].commit({**files, "data/test-00000-of-00001.parquet": table_bytes(0, 2)})
    with pytest.raises(
        UsageError, match=r"/data/test\*\.parquet, hf://datasets/me/splits@\w+/data/train\*\.parquet$"
    ) as caught:
        opened_at(hub, "me/splits")
    named = str(caught.value).partition("Open one of them: ")[2].split(", ")
    sizes = [len(hr.open(each, store_options={"endpoint": hub.endpoint})) for each in named]
    assert sizes == [2, 6]


def test_a_saved_dataset_in_a_repository_is_its_arrow_files(hub: HubServer, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    image = encode(photograph(1, 30, 30), "JPEG")
    rows = {"image": [{"bytes": image, "path": None}] * 4, "label": [0, 1, 1, 0]}
    datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "saved")
    hub.datasets["me/saved"] = Repository()
    hub.datasets["me/saved"].commit({path.name: path.read_bytes() for path in (tmp_path / "saved").iterdir()})
    opened = opened_at(hub, "me/saved")
    assert opened.classes == ("cat", "dog")
    assert opened.labels().tolist() == [0, 1, 1, 0]
    assert opened.read("image", 3) == image


def test_files_of_git_itself_are_read_on_the_hub(hub: HubServer) -> None:
    path = one(hub, "me/set/README.md")
    assert path.open().read(6, 6) == SMALL[6:12]
    assert path.open().read(20, 60) == SMALL[20:]
    assert path.pin is not None
    assert path.pin.size == len(SMALL)
    (listed,) = Stores({"endpoint": hub.endpoint}).resolve("hf://datasets/me/set/READ*")
    assert listed.pin == path.pin


def test_a_revision_is_a_commit_once(hub: HubServer) -> None:
    repository = hub.datasets["me/set"]
    opened = opened_at(hub, "me/set/data/**/*.tar")
    old = repository.revisions["main"]
    new = repository.commit({name: tar_of({f"{name[-5]}{at}.cls": b"new" for at in range(9)}) for name in SHARDS})
    assert opened[7]["cls"] == b"clsclscls"
    assert opened_at(hub, "me/set/data/**/*.tar").fingerprint != opened.fingerprint
    assert opened_at(hub, f"me/set@{new}/data/**/*.tar")[0]["cls"] == b"new"
    assert opened_at(hub, f"me/set@{old}/data/**/*.tar").fingerprint == opened.fingerprint


@pytest.mark.parametrize(
    ("written", "revision"),
    [("v1.0", "v1.0"), ("feature%2Fx", "feature/x"), ("refs/pr/3", "refs/pr/3"), ("~parquet", "refs/convert/parquet")],
)
def test_revisions_as_huggingface_hub_writes_them(hub: HubServer, written: str, revision: str) -> None:
    hub.datasets["me/set"].commit({"a.txt": b"there"}, revision)
    assert one(hub, f"me/set@{written}/a.txt").open().read(0, 9) == b"there"


def test_another_commit_of_the_same_files_keeps_their_indices(hub: HubServer) -> None:
    first = opened_at(hub, "me/set/data/**/*.tar")
    hub.datasets["me/set"].commit(SHARDS | {"README.md": b"a word more"})
    before = len(hub.files.requests)
    assert opened_at(hub, "me/set/data/**/*.tar").fingerprint == first.fingerprint
    assert len(hub.files.requests) - before <= 1


def test_a_dataset_without_owner(hub: HubServer) -> None:
    hub.datasets["mnist"] = Repository()
    hub.datasets["mnist"].commit({"data/x/a.txt": b"old", "b.txt": b"older"})
    assert one(hub, "mnist/data/x/a.txt").open().read(0, 9) == b"old"
    assert one(hub, "mnist@main/b.txt").open().read(0, 9) == b"older"


def test_an_address_that_expired_is_asked_for_again(hub: HubServer) -> None:
    opened = opened_at(hub, "me/set/data/**/*.tar")
    brief = hr.open("hf://datasets/me/set/data/**/*.tar", store_options={"endpoint": hub.endpoint}, retry_for=0.2)
    assert opened[0]["cls"] == brief[0]["cls"] == b"cls"
    hub.expire()
    assert opened[1]["cls"] == b"clscls"
    before = asked(hub, "/resolve/")
    assert opened[2]["cls"] == b"clsclscls"
    assert asked(hub, "/resolve/") == before
    hub.files.fault = lambda seen: hub._unsigned(seen._replace(query="expired"))
    with pytest.raises(ReadError, match=r"hf://datasets/me/set@\w{40}/data/a b/é-0\.tar, bytes .*403 Forbidden"):
        brief[3]


def test_a_loader_goes_on_when_addresses_expire(hub: HubServer) -> None:
    images = {f"{at:02}.jpg": encode(photograph(at, 40, 40), "JPEG") for at in range(24)}
    parts = {f"{part}.tar": tar_of(dict(list(images.items())[part::3])) for part in range(3)}
    hub.datasets["me/photos"] = Repository()
    hub.datasets["me/photos"].commit(parts)
    options: Any = {"view": hr.Resize((32, 32)), "batch_size": 4, "shuffle": True, "output": "numpy", "threads": 2}
    dataset = opened_at(hub, "me/photos/*.tar")
    batches = [batch["image"] for batch in hr.Loader(dataset, **options)]
    hub.expire()
    for step, (batch, again) in enumerate(zip(hr.Loader(dataset, **options), batches, strict=True)):
        if step % 2:  # however slow a request is, fewer addresses expire under it than it has attempts
            hub.expire()
        assert np.array_equal(batch["image"], again)


def test_a_read_that_is_given_up_leaves_the_address_to_others(hub: HubServer) -> None:
    path = one(hub, "me/set/README.md")
    held = threading.Event()

    async def give_up() -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1) as pool:
            loop.set_default_executor(pool)
            pool.submit(held.wait)  # so that the search has to queue
            try:
                reading = asyncio.ensure_future(path.store.read_async(path.key, 0, 5, None, lambda: None))
                await asyncio.sleep(0)
                reading.cancel()
                await asyncio.wait([reading])
            finally:
                held.set()

    asyncio.run(give_up())
    assert isinstance(path.store, hub_stores.HubStore)
    claimed, is_ours = path.store._places().claim(path.key)
    assert not is_ours
    claimed.result(20)
    assert path.open().read(0, 5) == SMALL[:5]


def test_connections_are_bounded(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub_stores, "_MOST_CONNECTIONS", 2)
    opened = opened_at(hub, "me/set/data/**/*.tar")
    for _ in range(2):
        assert [opened[at]["cls"] for at in range(0, 20, 5)] == [b"cls"] * 4
    store: Any = opened.files("cls").object(0).store  # type: ignore[attr-defined]
    places = [each.result() for each in store._places()._places.values()]
    assert sum("store" in place.web._connected for place in places) == 2
    assert asked(hub, "/resolve/") == 4


def test_the_token_goes_to_the_hub_alone(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.datasets["me/set"].private = True
    with pytest.raises(NotFoundError, match=r"there is no such dataset, or it is private\. .*hf auth login"):
        opened_at(hub, "me/set/data/**/*.tar")
    hub.asked.clear()
    opened = opened_at(hub, "me/set/data/**/*.tar", token=TOKEN)
    sent = pickle.dumps(opened)
    assert one(hub, "me/set/README.md", token=TOKEN).open().read(0, 5) == SMALL[:5]
    assert all(each.headers.get("authorization") == f"Bearer {TOKEN}" for each in hub.asked)
    assert not any("authorization" in map(str.lower, seen.headers) for seen in hub.files.requests)
    assert TOKEN.encode() not in sent
    assert b"sig=" not in sent
    there = pickle.loads(sent)
    with pytest.raises(NotFoundError, match="given in the program \\(token\\) are not sent to other processes"):
        there[0]
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert there[0] == opened[0]
    cached = [path for path in Path(os.environ["HEADRACE_CACHE"]).rglob("*") if path.is_file()]
    assert cached
    assert not any(TOKEN.encode() in path.read_bytes() or b"sig=" in path.read_bytes() for path in cached)
    with pytest.raises(NotFoundError):
        one(hub, "me/set/README.md", anonymous=True)


def test_a_fork_finds_files_for_itself(hub: HubServer) -> None:
    path = one(hub, "me/set/data/a b/é-1.tar")
    assert path.open().read(0, 2) == b"10"
    end, start = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(start, path.open().read(0, 6))
        finally:
            os._exit(0)
    os.close(start)
    with os.fdopen(end, "rb") as answer:
        assert answer.read() == b"10.cls"
    assert os.waitpid(child, 0)[1] == 0


FAILURES = {
    "no dataset": ("me/none", NotFoundError, "hf://datasets/me/none: could not be found: there is no such dataset"),
    "no revision": ("me/set@v9", NotFoundError, "hf://datasets/me/set@v9: could not be found: the dataset has no such"),
    "no file": ("me/set", NotFoundError, "/x.tar, bytes 0 to 1024: could not be read: the dataset has no such file"),
    "gated": (
        "me/gated",
        ReadError,
        "the dataset is gated: accept its terms on its page, at each of 4 attempts. Log in",
    ),
    "no name": ("me/..set", ReadError, "Write hf://datasets/OWNER/NAME"),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_failures_say_what_is_missing(hub: HubServer, failure: str) -> None:
    hub.datasets["me/gated"] = Repository(gated=True)
    name, kind, said = FAILURES[failure]
    with pytest.raises(kind, match=re.escape(said)):
        opened_at(hub, f"{name}/x.tar")


def test_a_listing_goes_on_from_the_last_page_that_came(hub: HubServer) -> None:
    photo = encode(photograph(0, 30, 36), "JPEG")
    hub.datasets["me/photos"] = Repository()
    hub.datasets["me/photos"].commit({f"{number % 2}/{number:02}.jpg": photo for number in range(40)})
    hub.answers = [200] + [200, 200, 200, 503] * 20  # first the commit, then pages
    assert len(opened_at(hub, "me/photos")) == 40
    pages = Counter(each.query for each in hub.asked if "tree" in each.path)
    assert len(pages) == 14  # of three entries each, two of which are folders
    assert pages.total() == 14 + 4


def test_failures_that_pass_are_tried_again(hub: HubServer) -> None:
    for answers in ([429], [503], [200, 429], [200, 200, 500, 502]):
        hub.answers = [status for status in answers if status != 200]
        assert one(hub, "me/set/README.md").open().read(0, 3) == SMALL[:3]
    hub.answers = [429] * 9
    hub.answers = [429] * 100_000
    with pytest.raises(ReadError, match=r"could not be found: the Hub answers 429, at each of \d+ attempts"):
        hr.open("hf://datasets/me/set/README.md", store_options={"endpoint": hub.endpoint}, retry_for=0.2)


def test_refused_credentials_are_named_not_shown(hub: HubServer) -> None:
    wrong = "hf_another-planted-token"
    with pytest.raises(ReadError) as caught:
        one(hub, "me/set/README.md", token=wrong)
    assert "the Hub answers 401, at each of 4 attempts. Log in by `hf auth login`" in str(caught.value)
    assert wrong not in "".join(traceback.format_exception(caught.value, chain=True)) + repr(caught.value.__context__)
    with pytest.raises(ReadError, match="no connection"):
        hr.open("hf://datasets/me/set/README.md", store_options={"endpoint": "http://127.0.0.1:9"}, retry_for=0.2)


def test_offline_and_wrong_options_are_told(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UsageError, match="expected endpoint, token, anonymous, client_options for hf://datasets/me/set"
    ):
        one(hub, "me/set/x", region="eu")
    with pytest.raises(UsageError, match="expected an address such as hf://datasets/OWNER/NAME@REVISION/path"):
        Stores().path("hf://models/me/set/x")
    with pytest.raises(UsageError, match="expected a file or a store to write to, got a commit of the Hub"):
        write_object(one(hub, "me/set/x.index"), __file__)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(ReadError, match="HF_HUB_OFFLINE is set"):
        one(hub, "me/set/x")
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(UsageError, match=r"pip install 'headrace\[hub\]'"):
        one(hub, "me/set/x")


@pytest.mark.long
def test_the_endpoint_and_the_token_of_the_environment(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.datasets["me/set"].private = True
    monkeypatch.setenv("HF_ENDPOINT", hub.endpoint)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    program = (
        "import sys, headrace as hr\n"
        "assert 'huggingface_hub' not in sys.modules\n"
        "print(len(hr.open('hf://datasets/me/set/data/**/*.tar')))"
    )
    assert run_python(program)[:2] == (0, "20\n")


def test_files_are_compared_with_their_hashes(hub: HubServer) -> None:
    images = {f"{at}.jpg": encode(photograph(at, 30, 30), "JPEG") for at in range(2)}
    images["2.jpg"] = images["0.jpg"] + bytes(1000)  # in LFS
    hub.datasets["me/images"] = Repository()
    hub.datasets["me/images"].commit(images)
    opened = hr.open("hf://datasets/me/images/*.jpg", store_options={"endpoint": hub.endpoint}, verify=True)
    assert [opened.read("image", at) for at in range(3)] == list(images.values())
    for stated in (hashlib.sha1(b"blob 2\0ab").hexdigest(), hashlib.sha256(b"ab").hexdigest()):
        assert not object_content.is_other_content(memoryview(b"ab"), stated)
        assert object_content.is_other_content(memoryview(b"ac"), stated)
    assert not object_content.is_other_content(memoryview(b"ac"), '"0123-2"')
