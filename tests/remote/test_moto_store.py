"""Objects that boto3 uploads to moto's S3 server: listings, versions, ranges, signed addresses, indices, runs."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
import zipfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from botocore.config import Config
from moto_store import MotoStore
from processes import in_fork
from remote_runs import CONTENT, WINDOWED, assert_same, loader, open_here
from typer.testing import CliRunner

import headrace as hr
from headrace.data.remote.listing import Stores
from headrace.errors import ChangedError, NotFoundError, ReadError
from headrace.tools.command_line import app

DATA = bytes(range(256)) * 40
PAGE = 1000
PART_BYTES = 5 << 20
"""Least size of a part in S3, but for the last one."""
ODD_KEYS = ("a b.bin", "é/ü 日本.bin", "x+y&z<1>.bin", "100%20.bin", "q?a=b.bin", "quo'te\".bin", "~t;u,v=w@x:y.bin")


@pytest.fixture
def indices(own_cache: Path) -> Path:
    """The cache folder, for this test alone."""
    return own_cache


@pytest.fixture
def shards(moto: MotoStore, indices: Path) -> MotoStore:
    moto.put_all(CONTENT)
    return moto


@pytest.fixture
def local(tmp_path: Path) -> hr.Dataset:
    return open_here(tmp_path)


def path_of(moto: MotoStore, key: str) -> Any:
    return Stores(moto.options).path(moto.address(key))


def open_shards(moto: MotoStore) -> hr.Dataset:
    return hr.open(moto.address("shards/*.tar"), store_options=moto.options)


def keys_of(moto: MotoStore, pattern: str) -> list[str]:
    return [path.key for path in Stores(moto.options).resolve(moto.address(pattern))]


# --- listings and keys ---


@pytest.mark.long
def test_a_listing_goes_on_page_by_page_and_keeps_to_its_prefix(moto: MotoStore) -> None:
    count = 2 * PAGE + 7
    moto.put_unseen([f"many/{number:05}.bin" for number in range(count)])
    moto.put_unseen(["many", "many2/00000.bin", "many/", "man/y.bin", "many/deep/00001.bin"])
    assert keys_of(moto, "many/*.bin") == [f"many/{number:05}.bin" for number in range(count)]
    targets = [each.target for each in moto.answered]
    assert len(targets) == 3
    assert all("prefix=many%2F" in target for target in targets)
    assert ["continuation-token=" in target for target in targets] == [False, True, True]
    assert keys_of(moto, "many/**/*1.bin")[-1] == "many/deep/00001.bin"


@pytest.mark.one_in(8)
@pytest.mark.parametrize("key", ODD_KEYS)
def test_any_name_of_a_key_is_listed_and_read(moto: MotoStore, key: str) -> None:
    moto.put(f"odd/{key}", DATA)
    assert keys_of(moto, "odd/**/*.bin") == [f"odd/{key}"]
    assert Stores(moto.options).resolve(moto.address("odd/**/*.bin"))[0].open().read(10, 90) == DATA[10:100]


def test_class_folders_as_the_console_makes_them(moto: MotoStore, indices: Path) -> None:
    """It makes an empty object that ends in a slash for each folder."""
    photo = _first_photograph()
    moto.put_all({"train/": b"", "train/cat/": b"", "train/dog é/": b""})
    moto.put_all({f"train/{name}/{at} 1.jpg": photo for name in ("cat", "dog é") for at in range(2)})
    opened = hr.open(moto.address("train/"), store_options=moto.options)
    assert (len(opened), opened.classes) == (4, ("cat", "dog é"))
    assert opened[3]["image"] == photo


def _first_photograph() -> bytes:
    with tarfile.open(fileobj=io.BytesIO(CONTENT["shards/0.tar"])) as tar:
        file = tar.extractfile("000.jpg")
        assert file is not None
        return file.read()


# --- ranges and contents ---


@pytest.mark.long
def test_ranges_are_those_of_the_object(moto: MotoStore) -> None:
    moto.put("a.bin", DATA)
    file = path_of(moto, "a.bin").open()
    moto.answered.clear()
    assert file.read(250, 20) == DATA[250:270]
    assert file.read(len(DATA) - 5, 100) == DATA[-5:]
    assert file.read(len(DATA) + 5, 100) == b""
    asked = [(each.status, each.headers["range"]) for each in moto.answered]
    assert asked == [(206, "bytes=250-269"), (206, f"bytes={len(DATA) - 5}-{len(DATA) - 1}")]
    assert "if-match" in moto.answered[1].headers, "every read after the first is of that content alone"
    moto.put("a.bin", DATA[:100])
    with pytest.raises(ChangedError, match=r"412 Precondition Failed"):
        file.read(0, 50)


@pytest.mark.long
def test_versions_of_a_bucket_that_keeps_them(moto: MotoStore) -> None:
    moto.s3.put_bucket_versioning(Bucket=moto.bucket, VersioningConfiguration={"Status": "Enabled"})
    first = moto.put("a.bin", DATA)
    path = path_of(moto, "a.bin")
    assert path.open().read(0, 5) == DATA[:5]
    assert (path.pin.etag, path.pin.version) == (first["ETag"], first["VersionId"])
    assert moto.put("a.bin", DATA)["VersionId"] != first["VersionId"]
    assert path.open().read(5, 5) == DATA[5:10], "another version of the same content is the same object"
    moto.put("a.bin", DATA[::-1])
    with pytest.raises(ChangedError, match=re.escape(f"{moto.address('a.bin')}, bytes 0 to 9")):
        path.open().read(0, 9)
    assert path_of(moto, "a.bin").open().read(0, 5) == DATA[::-1][:5]
    moto.s3.delete_object(Bucket=moto.bucket, Key="a.bin")
    with pytest.raises(NotFoundError, match=r"404 Not Found"):
        path_of(moto, "a.bin").open().read(0, 5)


def test_what_is_missing_is_named(moto: MotoStore) -> None:
    with pytest.raises(NotFoundError, match=r"none\.tar, bytes .*404 Not Found \(NoSuchKey\)\. Check the address"):
        hr.open(moto.address("none.tar"), store_options=moto.options)
    with pytest.raises(NotFoundError, match="expected objects that match"):
        hr.open(moto.address("none/*.tar"), store_options=moto.options)
    for address in ("s3://no-such-bucket/a.tar", "s3://no-such-bucket/*.tar", "s3://no-such-bucket/a/"):
        with pytest.raises(NotFoundError, match=r"s3://no-such-bucket/.*404 Not Found \(NoSuchBucket\)"):
            hr.open(address, store_options=moto.options)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("version", ["s3", "s3v4"])
def test_a_signed_address_is_read_like_a_file(shards: MotoStore, local: hr.Dataset, version: str) -> None:
    signer = shards.client("s3", config=Config(signature_version=version))
    of = [{"Bucket": shards.bucket, "Key": key} for key in sorted(CONTENT)]
    urls = [signer.generate_presigned_url("get_object", Params=one) for one in of]
    signer.close()
    assert all("Signature=" in url for url in urls)
    assert_same(loader(hr.open(urls)), loader(local))
    missing = urls[0].replace("shards/0.tar", "shards/9.tar")
    with pytest.raises(NotFoundError, match=r"/shards/9\.tar, bytes .* 404 Not Found \(NoSuchKey\)") as caught:
        hr.open(missing)
    assert missing.partition("Signature=")[2].partition("&")[0] not in str(caught.value)


# --- merged indices ---


def command(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["index", *arguments])


@pytest.mark.long
def test_a_large_merged_index_is_uploaded_in_parts(
    moto: MotoStore, indices: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for number in range(PART_BYTES // 3900):
            file.writestr(f"{'d' * 3900}{number:05}.cls", b"%d" % number)
    moto.put("long names.zip", archive.getvalue())
    moto.in_environment(monkeypatch)
    moto.answered.clear()
    done = command(moto.address("long names.zip"), "--to", moto.address("i x/index.headrace"))
    assert done.exit_code == 0, done.output
    puts = [each for each in moto.answered if each.method == "PUT"]
    assert len(puts) == 2
    assert all("i%20x/index.headrace?partNumber=" in each.target for each in puts)
    written = moto.s3.head_object(Bucket=moto.bucket, Key="i x/index.headrace")
    assert written["ContentLength"] > PART_BYTES
    assert written["ETag"].endswith('-2"')
    assert "Uploads" not in moto.s3.list_multipart_uploads(Bucket=moto.bucket)
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "other"))
    moto.answered.clear()
    opened = hr.open(moto.address("long names.zip"), index=moto.address("i x/index.headrace"))
    assert not any("names.zip" in each.target for each in moto.answered)
    assert (len(opened), opened[1000]["cls"]) == (PART_BYTES // 3900, b"1000")


def test_an_index_that_may_not_be_written_is_named(shards: MotoStore, monkeypatch: pytest.MonkeyPatch) -> None:
    shards.in_environment(monkeypatch)
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "*"}
    shards.put_policy(denied)
    failed = command(shards.address("shards/*.tar"), "--to", shards.address("shards/index.headrace"))
    assert isinstance(failed.exception, ReadError)
    assert "shards/index.headrace: could not be written: the store answers 403 Forbidden" in str(failed.exception)
    with pytest.raises(NotFoundError):
        path_of(shards, "shards/index.headrace").open().read(0, 1)


# --- runs ---


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"order": WINDOWED}], ids=["global", "windowed"])
def test_batches_are_those_of_the_same_files_here(shards: MotoStore, local: hr.Dataset, options: Any) -> None:
    there, here = loader(open_shards(shards), **options), loader(local, **options)
    for _ in range(2):
        assert_same(there, here)
    batches = iter(there)
    list(islice(batches, 2))
    state = there.state_dict()
    batches.close()
    resumed = loader(open_shards(shards), **options)
    resumed.load_state_dict(state)
    _skip_two(here, resumed)
    reads = [each for each in shards.answered if each.method == "GET" and "/shards/" in each.target]
    assert all(each.status == 206 for each in reads)


def _skip_two(here: hr.Loader, resumed: hr.Loader) -> None:
    batches = iter(here)
    list(islice(batches, 2))
    assert_same(resumed, batches)


@pytest.mark.long
def test_two_ranks_share_a_cache(shards: MotoStore, local: hr.Dataset, tmp_path: Path) -> None:
    def batches(data: hr.Dataset, rank: int, cache: str | None) -> bytes:
        return digest_of(loader(data, batch_size=4, world_size=2, rank=rank, cache=cache))

    cache = f"disk:{tmp_path / 'samples'}:40MB"
    other = in_fork(lambda: batches(open_shards(shards), 1, cache))
    assert batches(open_shards(shards), 0, cache) == batches(local, 0, None)
    assert other() == batches(local, 1, None)


def digest_of(batches: hr.Loader) -> bytes:
    state = hashlib.sha256()
    for _ in range(2):
        for batch in batches:
            for value in batch.values():
                state.update(np.ascontiguousarray(value).tobytes())
    return state.hexdigest().encode()


def test_permission_withdrawn_under_the_run_is_named(shards: MotoStore) -> None:
    run = loader(open_shards(shards))
    list(run)
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:GetObject"}
    shards.put_policy({**denied, "Resource": f"arn:aws:s3:::{shards.bucket}/shards/2.tar"})
    with pytest.raises(ReadError, match=r"shards/2\.tar, bytes .*403 Forbidden, at each of 4 attempts\. Check"):
        list(run)
    assert run.stats().bad == 0
