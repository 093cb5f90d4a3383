"""A merged index of archives in a store: written where it is told, fetched once a node, checked against archives."""

from __future__ import annotations

import json
import os
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
from servers import KEY_ID, SECRET, Answer, Seen, StoreServer, etag
from test_remote_archives import MEMBERS, tar_of, zip_of
from typer.testing import CliRunner, Result

import headrace as hr
from headrace.data.remote import remote_file
from headrace.data.remote.listing import Stores
from headrace.data.remote.remote_file import write_object
from headrace.data.storage import file_writing
from headrace.data.storage.file_writing import UnwritableError, partial_file
from headrace.errors import ChangedError, DatasetError, NotFoundError, ReadError, UsageError
from headrace.tools.command_line import app
from headrace.tools.plan_command import Prices, read_prices

INDEX = "s3://bucket/i x/index.headrace"
TARS = "s3://bucket/tars/*.tar"
BRACES = "s3://bucket/tars/{000..003}.tar"


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["index", *arguments])


@pytest.fixture
def shards(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    """Four tars and a store that the environment's credentials reach, with a cache folder that is empty."""
    for name, value in (("ACCESS_KEY_ID", KEY_ID), ("SECRET_ACCESS_KEY", SECRET), ("REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    for shard in range(4):
        store.objects[f"tars/{shard:03}.tar"] = tar_of({f"{shard}{name}": data for name, data in MEMBERS.items()})
    return store


def test_the_command_takes_how_long_requests_are_retried(shards: StoreServer, tmp_path: Path) -> None:
    shards.fault = lambda seen: Answer(503)
    done = command("s3://bucket/tars/000.tar", "--endpoint", shards.endpoint, "--retry-for", "0")
    assert done.exit_code == 1, done.output
    assert asked(shards) == ["HEAD tars/000.tar"] * 2, "of the size of all, then of the archive: each once"


def test_the_command_takes_prices(shards: StoreServer, tmp_path: Path) -> None:
    (tmp_path / "prices.json").write_text('{"request": 4e-7, "egress_gb": 0.02}')
    assert read_prices(tmp_path / "prices.json").gap_bytes == 20_000
    assert Prices().gap_bytes == 10**12, "bytes are free"
    done = command(TARS, "--prices", str(tmp_path / "prices.json"))
    assert done.exit_code == 0, done.output


@pytest.fixture
def indexed(shards: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StoreServer:
    """The same, with a merged index, on another machine: its cache folder is empty."""
    assert command(TARS, "--to", INDEX).exit_code == 0
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "other"))
    shards.requests.clear()
    return shards


def asked(store: StoreServer) -> list[str]:
    return [f"{seen.method} {seen.key}" for seen in store.requests]


def test_the_command_indexes_addresses(shards: StoreServer, tmp_path: Path) -> None:
    done = command("s3://bucket/tars/", "--endpoint", shards.endpoint, "--json", str(tmp_path / "figures.json"))
    assert done.exit_code == 0, done.output
    files = json.loads((tmp_path / "figures.json").read_text())["files"]
    assert [file["path"] for file in files] == [f"s3://bucket/tars/{shard:03}.tar" for shard in range(4)]
    assert all(file["built"] and file["samples"] == 12 for file in files)
    assert not any(seen.method == "PUT" for seen in shards.requests), "no bucket is written to unless --to says so"
    assert "already there" in command(BRACES).output
    shards.requests.clear()
    hr.open(TARS)
    assert asked(shards) == ["GET ", "GET tars/000.tar"]
    assert "expected objects of which an index is kept" in str(command("s3://bucket/none/").exception)
    shards.objects["list.csv"] = b"image\n"
    assert "expected a tar or a zip in a store" in str(command("s3://bucket/list.csv").exception)


@pytest.mark.parametrize("signed", [True, False])
def test_the_command_reaches_the_store_that_it_is_told(
    shards: StoreServer, monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    done = command(BRACES, "--to", INDEX, "--endpoint", shards.endpoint, *([] if signed else ["--anonymous"]))
    assert done.exit_code == 0, done.output
    assert {"authorization" in seen.headers for seen in shards.requests} == {signed}
    assert asked(shards).count("PUT i x/index.headrace") == 1


def test_a_large_index_appears_whole_or_not_at_all(shards: StoreServer, tmp_path: Path) -> None:
    """obstore sends what is larger than 5 MB in parts."""
    path = Stores(shards.options).path(INDEX)
    source = tmp_path / "large"
    source.write_bytes(os.urandom(1 << 20) * 11)
    shards.objects[path.key] = b"the earlier one"
    seen: list[bytes] = []

    def fails(seen_now: Seen) -> Answer | None:
        seen.append(shards.objects[path.key])
        return Answer(403, "AccessDenied") if "partNumber=3" in seen_now.query else None

    shards.fault = fails
    with pytest.raises(ReadError, match=r"s3://bucket/i x/index\.headrace: could not be written"):
        write_object(path, str(source))
    assert shards.objects[path.key] == b"the earlier one"
    shards.fault = None
    shards.fail_first(2, Answer(503))  # passes
    write_object(path, str(source))
    assert shards.objects[path.key] == source.read_bytes()
    assert set(seen) == {b"the earlier one"}
    assert shards.uploads == {}, "no part of the upload that failed is left"


def test_a_merged_index_replaces_every_request_for_headers(indexed: StoreServer) -> None:
    opened = hr.open(BRACES, index=INDEX)
    assert asked(indexed) == ["HEAD i x/index.headrace", "GET i x/index.headrace"]
    indexed.requests.clear()
    again = hr.open(TARS, index=INDEX)
    assert asked(indexed) == ["GET ", "HEAD i x/index.headrace"], "the index is in the cache folder by now"
    without = hr.open(TARS)
    for one in (opened, again):
        assert one.fingerprint == without.fingerprint
        assert list(one.keys) == list(without.keys)
        assert [one[number] for number in (0, 17, 47)] == [without[number] for number in (0, 17, 47)]


def test_a_merged_index_at_a_path_and_part_of_its_archives(shards: StoreServer, tmp_path: Path) -> None:
    there = tmp_path / "index.headrace"
    assert command(TARS, "--to", str(there)).exit_code == 0
    assert not any(seen.method == "PUT" for seen in shards.requests)
    shards.requests.clear()
    some = hr.open(["s3://bucket/tars/002.tar", "s3://bucket/tars/001.tar"], index=there)
    assert shards.requests == []
    assert some.fingerprint == hr.open(["s3://bucket/tars/002.tar", "s3://bucket/tars/001.tar"]).fingerprint
    shards.objects["tars/004.tar"] = shards.objects["tars/000.tar"]
    with pytest.raises(
        DatasetError, match=r"got none of s3://bucket/tars/004\.tar among 4.*headrace index ARCHIVES --to"
    ):
        hr.open(TARS, index=there)
    with pytest.raises(NotFoundError, match="index: expected a file or an address"):
        hr.open(TARS, index=tmp_path / "none.headrace")


def test_zips_have_merged_indices(shards: StoreServer, tmp_path: Path) -> None:
    shards.objects["a.zip"] = zip_of({"cat/1.jpg": b"one", "dog/2.jpg": b"two" * 99})
    there = str(tmp_path / "index.headrace")
    assert command("s3://bucket/a.zip", TARS, "--to", there).exit_code == 0
    opened = hr.open("s3://bucket/a.zip", index=there, classes=True)
    assert (opened.classes, opened[1]["image"]) == (("cat", "dog"), b"two" * 99)
    with pytest.raises(DatasetError, match=r"expected the index of s3://bucket/tars/000\.tar as 'headrace zip index"):
        hr.open(["s3://bucket/a.zip", "s3://bucket/tars/000.tar"], index=there)


def test_an_archive_that_changed_is_named(indexed: StoreServer) -> None:
    indexed.objects["tars/002.tar"] = tar_of(MEMBERS)
    with pytest.raises(
        ChangedError, match=r"s3://bucket/tars/002\.tar: it was replaced since its index in s3://bucket/i x"
    ):
        hr.open(TARS, index=INDEX)
    opened = hr.open(BRACES, index=INDEX)  # nothing is asked of the archives: found out when it is read
    assert opened[0]["cls"]
    with pytest.raises(
        ChangedError, match=r"s3://bucket/tars/002\.tar, bytes .*Where index= names it, build that again"
    ):
        opened[30]
    # Built again, it is merged again; the copy in the cache folder is of the earlier index.
    assert command(TARS, "--to", INDEX).exit_code == 0
    assert hr.open(TARS, index=INDEX)[30]["cls"]


def test_no_credential_is_in_an_index(indexed: StoreServer, tmp_path: Path) -> None:
    web = [
        indexed.url(f"tars/{shard:03}.tar", user="u:planted-password", query="sig=planted-sig") for shard in range(4)
    ]
    there = tmp_path / "web.headrace"
    assert command(*web, "--to", str(there)).exit_code == 0
    for data in (indexed.objects["i x/index.headrace"], there.read_bytes()):
        assert not any(secret in data for secret in (SECRET.encode(), KEY_ID.encode(), b"planted"))
    assert len(hr.open(web, index=there)) == 48


@pytest.mark.one_in(2)
@pytest.mark.parametrize("damage", ["table", "part", "short", "foreign"])
def test_a_damaged_index_is_told(indexed: StoreServer, damage: str, tmp_path: Path) -> None:
    data = bytearray(indexed.objects["i x/index.headrace"])
    if damage == "foreign":
        data = bytearray(tar_of(MEMBERS))
    elif damage == "short":
        del data[-3000:]
    else:
        data[120 if damage == "table" else len(data) - 2000] ^= 1
    indexed.objects["i x/index.headrace"] = bytes(data)
    (tmp_path / "local.headrace").write_bytes(data)
    for index in (INDEX, str(tmp_path / "local.headrace")):
        with pytest.raises(DatasetError, match="headrace index ARCHIVES --to") as caught:
            hr.open(BRACES, index=index)
        assert index in str(caught.value)
    assert not any("merged" in name for name in os.listdir(tmp_path / "other"))


def test_a_copy_damaged_on_disk_is_fetched_again(indexed: StoreServer, tmp_path: Path) -> None:
    hr.open(BRACES, index=INDEX)
    (copy,) = (tmp_path / "other").glob("*.merged.headrace")
    data = bytearray(copy.read_bytes())
    data[120] ^= 1
    copy.write_bytes(data)
    with pytest.warns(UserWarning, match="expected a copy of s3://bucket/i x/index.headrace, got a damaged file"):
        assert len(hr.open(BRACES, index=INDEX)) == 48
    data[120] ^= 1
    data[-2000] ^= 1
    copy.write_bytes(data)
    with pytest.raises(DatasetError, match=r"got a damaged one .*Remove .*merged\.headrace, and open again"):
        hr.open(BRACES, index=INDEX)


def test_where_a_merged_index_may_be_written(shards: StoreServer, tmp_path: Path) -> None:
    taken = tmp_path / "taken.headrace"
    taken.write_bytes(b"something else")
    shards.objects["taken.headrace"] = shards.objects["tars/000.tar"]
    for to, why in (
        ("s3://bucket/tars/000.tar", "expected the name of an index, such as index.headrace"),
        ("s3://bucket/taken.headrace", "expected a new name, or a merged index to replace"),
        (str(taken), "expected a new name, or a merged index to replace"),
        (shards.url("new.headrace"), "nothing is written to a web server"),
    ):
        failed = command(TARS, "--to", to)
        assert isinstance(failed.exception, UsageError)
        assert why in str(failed.exception)
    local = tmp_path / "a.tar"
    local.write_bytes(shards.objects["tars/000.tar"])
    assert "expected archives in stores" in str(command(str(local), "--to", str(tmp_path / "i.headrace")).exception)
    assert not any(seen.method == "PUT" for seen in shards.requests)
    with pytest.raises(UsageError, match="index: expected none"):
        hr.open(local, index=taken)


def test_one_of_a_node_fetches_the_index(indexed: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads stand for processes: what they wait for is a lock of an open file, which is each one's own."""
    monkeypatch.setattr(remote_file, "_PIECE_BYTES", 2048)
    opened: list[Any] = []
    threads = [threading.Thread(target=lambda: opened.append(hr.open(BRACES, index=INDEX))) for _ in range(8)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({one.fingerprint for one in opened}) == 1
    assert len(opened) == 8
    size = len(indexed.objects["i x/index.headrace"])
    assert asked(indexed).count("GET i x/index.headrace") == -(-size // 2048)
    assert indexed.bytes_read() == size


def test_nobody_waits_for_a_stopped_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_writing, "_LOOK_EVERY_S", 0)
    place = str(tmp_path / "x.headrace")
    with (
        partial_file(place),
        pytest.raises(UnwritableError, match="another process has held it for 0 s"),
        partial_file(place, patience_s=0.0),
    ):
        raise AssertionError("it is locked")


def test_etags_are_those_of_the_store(indexed: StoreServer) -> None:
    for shard in range(4):
        assert etag(indexed.objects[f"tars/{shard:03}.tar"]).encode() in indexed.objects["i x/index.headrace"]
