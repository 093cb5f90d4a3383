"""Reads of a store by the libraries that scripts use: stages, requests and bytes as the server counts them."""

from __future__ import annotations

import io
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import fsspec
import pytest
import requests
import s3fs
import torch.utils.data  # noqa: F401  # hooks come with it
import urllib3
from probing import LibraryProbe
from store_servers import KEY_ID, SECRET, StoreServer, running_store
from webdataset.gopen import gopen

from headrace.doctor.probe.batch_production import OTHERS, RemoteReadCounts, place_of
from headrace.doctor.session.evidence import RemoteLine
from headrace.doctor.session.evidence_reader import remote_reads
from headrace.doctor.session.storage import merge_remote

DATA = bytes(range(256)) * 160
KEY = "photos/a b.bin"
USER, QUERY = "planted-user:planted-pw", "X-Amz-Signature=planted-signature&sig=planted-sig"


@pytest.fixture(scope="module")
def store() -> Iterator[StoreServer]:
    with running_store({KEY: DATA}) as server:
        # Threads and connections that fsspec keeps for good.
        fsspec.filesystem("http").cat_file(server.url(KEY), start=0, end=1)
        yield server


def by_requests(server: StoreServer) -> int:
    with requests.Session() as session:
        return len(session.get(server.url(KEY, user=USER, query=QUERY)).content)


def by_requests_in_pieces(server: StoreServer) -> int:
    with requests.Session() as session, session.get(server.url(KEY), stream=True) as answer:
        return sum(map(len, answer.iter_content(10_000)))


def by_urllib3(server: StoreServer) -> int:
    with urllib3.PoolManager() as pool:
        return len(pool.request("GET", server.url(KEY), headers={"Range": "bytes=100-9999"}).data)


def by_urllib(server: StoreServer) -> int:
    with urllib.request.urlopen(server.url(KEY, query=QUERY)) as answer:
        return len(answer.read())


def by_fsspec(server: StoreServer) -> int:
    return len(fsspec.filesystem("http").cat_file(server.url(KEY), start=10, end=8010))


def by_fsspec_file(server: StoreServer) -> int:
    with fsspec.filesystem("http").open(server.url(KEY), block_size=8192) as file:
        return len(file.read(10_000)) + len(file.read(100))


def by_pipe(server: StoreServer) -> int:
    secret = 'pipe:curl -s -H "Authorization: Bearer planted-bearer" '
    with gopen(secret + server.url(KEY, user=USER, query=QUERY)) as pipe:
        return len(pipe.read(10_000)) + len(pipe.read())


def by_curl(server: StoreServer) -> int:
    with gopen(server.url(KEY)) as pipe:
        return len(pipe.read())


def by_boto3(server: StoreServer) -> int:
    return len(_boto3(server).get_object(Bucket="bucket", Key=KEY)["Body"].read())


def by_boto3_transfer(server: StoreServer) -> int:
    into = io.BytesIO()
    _boto3(server).download_fileobj("bucket", KEY, into)
    return into.tell()


def by_boto3_resource(server: StoreServer) -> int:
    of = boto3.resource("s3", endpoint_url=server.endpoint, **_signed())
    return sum(map(len, of.Bucket("bucket").Object(KEY).get()["Body"].iter_chunks(10_000)))


def by_s3fs(server: StoreServer) -> int:
    system = s3fs.S3FileSystem(endpoint_url=server.endpoint, key=KEY_ID, secret=SECRET, skip_instance_cache=True)
    return len(system.cat_file(f"bucket/{KEY}", start=0, end=6000))


def _boto3(server: StoreServer) -> Any:
    return boto3.client("s3", endpoint_url=server.endpoint, **_signed())


def _signed() -> dict[str, str]:
    return {"aws_access_key_id": KEY_ID, "aws_secret_access_key": SECRET, "region_name": "us-east-1"}


BUCKET, HOST = "s3://bucket", "http://127.0.0.1"
KEEPS = pytest.mark.leaks(reason="the loop of fsspec's thread keeps a thread for look-ups of hosts")
READERS: list[Any] = [
    (by_requests, {"remote:requests"}, HOST),
    (by_requests_in_pieces, {"remote:requests", "remote:urllib3"}, HOST),
    (by_urllib3, {"remote:urllib3"}, HOST),
    (by_urllib, {"remote:urllib", "remote:http.client"}, HOST),
    (by_fsspec, {"remote:fsspec HTTPFileSystem"}, HOST),
    (by_fsspec_file, {"remote:fsspec HTTPFileSystem"}, HOST),
    (by_pipe, {"remote:webdataset pipe"}, HOST),
    (by_curl, {"remote:webdataset pipe"}, HOST),
    (by_boto3, {"remote:boto3 GetObject", "remote:boto3 body"}, BUCKET),
    (by_boto3_resource, {"remote:boto3 GetObject", "remote:boto3 body"}, BUCKET),
    (by_boto3_transfer, {"remote:boto3 transfer"}, BUCKET),
    pytest.param(by_s3fs, {"remote:fsspec S3FileSystem"}, HOST, marks=KEEPS),
]


@pytest.mark.parametrize(("read", "stages", "place"), READERS, ids=lambda one: getattr(one, "__name__", ""))
@pytest.mark.one_in(8)
def test_a_read_is_a_stage_and_its_requests_are_those_that_the_server_saw(
    read: Callable[[StoreServer], int], stages: set[str], place: str, probed: LibraryProbe, store: StoreServer
) -> None:
    read(store)  # connections and imports
    store.requests.clear()
    take(probed)
    found = probed.calls(lambda: read(store))
    (row,) = take(probed)
    gets = [one for one in store.requests if one.method == "GET"]
    sizes = [len(DATA) if one.start is None else min(one.end or len(DATA), len(DATA)) - one.start for one in gets]
    assert {name for name in found if name.startswith("remote:")} == stages
    seen = len(store.requests)
    assert row[:3] == [place, seen, 0]
    assert row[3] == sum(sizes)
    assert probed.result <= row[3]
    assert 0 < row[4] < 20e6
    text = Path(probed.probe.evidence.path).read_text()
    assert "planted" not in text
    assert "photos" not in text


def take(probed: LibraryProbe) -> list[list[Any]]:
    """Rows of the record of what came since, by the stores' names, once they are in the evidence."""
    record = probed.probe.batches.remote.record(0, 1)
    if record is None:
        return []
    probed.probe.evidence.write(record)
    names = {number: text for text, number in probed.probe.evidence.names.items()}
    return [[names[number], *counts] for number, *counts in record[3]]


def test_errors_count_as_failed_and_reach_the_script(probed: LibraryProbe, store: StoreServer) -> None:
    take(probed)
    assert probed.calls(lambda: requests.get(store.url("missing"), timeout=5))["remote:requests"] == 1
    assert probed.result.status_code == 404
    ((_, seen, failed, *_),) = take(probed)
    assert (seen, failed) == (1, 1)
    with pytest.raises(requests.ConnectionError):
        probed.calls(lambda: requests.get("http://127.0.0.1:9/x", timeout=5))
    assert take(probed) == []


@pytest.mark.parametrize(
    ("url", "place"),
    [
        (
            "https://photos.s3.eu-west-1.amazonaws.com/a/b.jpg?X-Amz-Signature=planted",
            "https://photos.s3.eu-west-1.amazonaws.com",
        ),
        ("http://planted-user:planted@host:8080/a?b=planted", "http://host"),
        ("http://planted-user/planted@host/a", OTHERS),
        ("http://[planted", OTHERS),
        (None, OTHERS),
    ],
)
def test_a_store_is_named_by_its_bucket_or_host_only(url: Any, place: str) -> None:
    assert place_of(url) == place


def test_requests_of_all_processes_are_merged() -> None:
    names: dict[str, int] = {}
    rows = []
    for _ in range(2):
        reads = RemoteReadCounts(lambda text: names.setdefault(text, len(names)))
        for number in range(3000):
            reads.answered("s3://photos", 0, 100, failed=number % 100 == 0)
        reads.more("s3://photos", 7)
        record = reads.record(5, 10)
        assert record is not None
        rows.append(remote_reads(RemoteLine(*record[1:]), {number: text for text, number in names.items()}))
        assert reads.record(6, 0) is None
        assert reads.record(6, 3) == ("remote", 6, 3, [])
    merged = merge_remote(rows)
    (store,) = merged.stores
    assert (merged.batches, store.requests, store.failed, store.bytes) == (20, 6000, 60, 2 * 300_007)
    nodes = merge_remote([merged, rows[0]])
    assert (nodes.batches, nodes.stores[0].requests) == (30, 9000)
