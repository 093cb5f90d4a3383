"""`forecast` and `headrace plan` against the requests that a Loader makes, and against bills made up by hand."""

from __future__ import annotations

import io
import json
import logging
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives import add_file
from loader_data import encode, photograph
from remote_runs import SAMPLES, WINDOWED, loader, open_here, open_there
from servers import StoreServer
from typer.testing import CliRunner

import headrace as hr
from headrace.errors import UsageError
from headrace.fetch import forecast, read_groups
from headrace.stores import LinkModel
from headrace.stores.link import HedgeBudget, LinkMeter
from headrace.tools.command_line import app
from headrace.tools.plan_command import Prices, RunShape, bill_of, read_prices

LINK = LinkModel(0.02, 1e6, 4)
SHAPE = RunShape(epochs=3, ranks=2, batch=4, ranks_per_node=2, cache_bytes=0, rate=100.0, latency_s=0.0, bandwidth=1e9)


@pytest.mark.parametrize("order", ["global", WINDOWED], ids=["global", "windowed"])
def test_requests_and_bytes_are_those_of_a_run(
    order: Any, store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda *_, **__: LINK)
    dataset = open_there(store, tmp_path)
    read = loader(dataset, order=order)
    read.set_epoch(1)
    assert sum(len(batch["label"]) for batch in read) == SAMPLES
    counted = read.stats().fetch
    assert counted is not None
    recipe = read._feed.recipe
    found = forecast(dataset, recipe.read_columns, recipe.plan, LINK)
    assert round(found.requests * found.samples) == counted.counts.requests
    assert round(found.read_bytes * found.samples) == counted.counts.bytes


MANY = 60
PHOTOS = {f"{at % 5}/{at:03}.jpg": encode(photograph(at, 60, 80), "JPEG") + bytes(20_000) for at in range(MANY)}


def tars_of(each: int) -> dict[str, bytes]:
    found, names = {}, sorted(PHOTOS)
    for first in range(0, MANY, each):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for name in names[first : first + each]:
                add_file(tar, name, PHOTOS[name])
        found[f"data/{first:03}.tar"] = out.getvalue()
    return found


PADDING = 60_000
"""Bytes that make a parquet file of few samples larger than 1 MB, below which files are decoded at opening."""


def parquet_of(each: int) -> dict[str, bytes]:
    found, values = {}, [data + bytes(PADDING) for data in PHOTOS.values()]
    for first in range(0, MANY, each):
        out = io.BytesIO()
        table = pa.table({"image": pa.array(values[first : first + each], pa.binary())})
        pq.write_table(table, out, row_group_size=10, write_page_index=True, compression="none", use_dictionary=False)
        found[f"data/{first:03}.parquet"] = out.getvalue()
    return found


def zip_of() -> dict[str, bytes]:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for name, data in PHOTOS.items():
            made.writestr(name, data)
    return {"data/all.zip": out.getvalue()}


LAYOUTS: dict[str, tuple[Callable[[], dict[str, bytes]], str]] = {
    "few tars": (lambda: tars_of(20), "data/*.tar"),
    "many tars": (lambda: tars_of(2), "data/*.tar"),
    "loose objects": (lambda: {f"data/{name}": data for name, data in PHOTOS.items()}, "data/"),
    "one zip": (zip_of, "data/all.zip"),
    "parquet": (lambda: parquet_of(20), "data/*.parquet"),
}


@pytest.mark.parametrize("order", ["global", WINDOWED], ids=["global", "windowed"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.one_in(3)
def test_a_bill_is_what_the_server_counts(
    layout: str, order: Any, store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one rank and two, without a cache and, in two epochs, with one of all or half of the bytes."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    # A store on loopback is measured while a run plans its first rounds, and answers late on a busy machine.
    monkeypatch.setattr(LinkModel, "gap_bytes", 30_000)
    monkeypatch.setattr(LinkModel, "request_bytes", 1 << 20)
    monkeypatch.setattr(HedgeBudget, "take", lambda _: False)
    make, where = LAYOUTS[layout]
    store.objects.update(make())
    stored = sum(map(len, PHOTOS.values())) + (PADDING * MANY if layout == "parquet" else 0)
    # Of so few samples, a cache of half of them does not hold exactly the first, which matters where neighbours join.
    # With a cache, a run reads rows of parquet's pages again, which a bill does not foresee.
    count = {"many tars": 4, "loose objects": 4, "parquet": 2}.get(layout, 3)
    cases = ((1, 0.0), (2, 0.0), (1, 1.0), (1, 0.5))[:count]
    for ranks, share in cases:
        dataset = hr.open(f"s3://bucket/{where}", store_options=store.options)
        cache_bytes, epochs = int(stored * share * (1.5 if share == 1 else 1)), 2 if share else 1
        shape = replace(SHAPE, epochs=epochs, ranks=ranks, batch=5, ranks_per_node=ranks, cache_bytes=cache_bytes)
        bill = bill_of(dataset, order, shape, Prices())
        counted = 0
        for rank in range(ranks):
            # A process of its own: one that has read parquet's pages knows the values in them, and reads less.
            dataset = hr.open(f"s3://bucket/{where}", store_options=store.options)
            store.requests.clear()
            cache = {"cache": f"ram:{cache_bytes // 1000}KB"} if share else {}
            read = loader(dataset, fields={"image": hr.Image()}, order=order, rank=rank, world_size=ranks, **cache)
            read.set_epoch(2 - epochs)
            for _ in range(epochs):
                assert sum(len(batch["image"]) for batch in read) == MANY // ranks
            counted += len(store.requests)
        assert bill.requests == pytest.approx(counted, rel=0.15, abs=3), (ranks, share)


def test_a_report_of_loose_objects_promises_nothing(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each takes a request in any order, however few bytes it has."""
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    store.objects.update({f"data/{name}": data for name, data in PHOTOS.items()})
    read = loader(hr.open("s3://bucket/data/", store_options=store.options))
    with caplog.at_level(logging.WARNING, "headrace"):
        assert sum(len(batch["image"]) for batch in read) == MANY
    assert not caplog.records


def test_a_cached_share_is_not_read(store: StoreServer, tmp_path: Path) -> None:
    dataset = open_there(store, tmp_path)
    plan = loader(dataset)._feed.recipe.plan
    whole, half, none = (forecast(dataset, ["image"], plan, LINK, cached_share=share) for share in (0.0, 0.5, 1.0))
    assert 0 < half.read_bytes < whole.read_bytes
    assert (none.requests, none.read_bytes) == (0, 0)


def test_the_cost_of_the_global_order_is_logged_once_and_is_the_servers_count(
    store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path))
    monkeypatch.setattr(LinkMeter, "model", lambda *_, **__: replace(LINK, latency_s=0.0))
    monkeypatch.setattr(read_groups, "_MOST_BYTES", 1 << 16)  # so that rounds have few samples
    monkeypatch.setattr(read_groups, "_LEAST_BYTES", 1 << 16)
    store.objects.update(tars_of(20))
    dataset = hr.open("s3://bucket/data/*.tar", store_options=store.options)
    counted = []
    with caplog.at_level(logging.WARNING, "headrace"):
        for order in ("global", "windowed"):
            read = loader(dataset, fields={"image": hr.Image()}, order=order)
            for _ in range(2):
                store.requests.clear()
                assert sum(len(batch["image"]) for batch in read) == MANY
            counted.append(len(store.requests))
    (record,) = caplog.records
    assert isinstance(record.args, tuple)
    stated = [int(str(record.args[at]).replace(",", "")) for at in (0, 3)]
    assert stated == pytest.approx(counted, rel=0.15)
    assert stated[0] > 4 * stated[1]


def test_files_on_this_machine_have_no_bill(tmp_path: Path) -> None:
    dataset = open_here(tmp_path)
    with pytest.raises(UsageError, match="in a store"):
        forecast(dataset, ["image"], loader(dataset)._feed.recipe.plan, LINK)


def test_a_bill_adds_up(store: StoreServer, tmp_path: Path) -> None:
    dataset = open_there(store, tmp_path)
    prices = Prices(request=0.5, egress_gb=1e9, gpu_hour=7.0)
    bill = bill_of(dataset, "global", SHAPE, prices)
    assert bill.steps == SAMPLES / 8
    assert bill.requests == pytest.approx(bill.requests_per_sample * SAMPLES * 3)
    assert bill.request_price == pytest.approx(bill.requests / 2)
    assert bill.egress_price == pytest.approx(bill.read_bytes)
    assert bill.hours == pytest.approx(SAMPLES * 3 / 200 / 3600)
    assert bill.idle_price == 0
    slow = bill_of(dataset, "global", replace(SHAPE, bandwidth=bill.node_bandwidth / 4), prices)
    assert slow.hours == pytest.approx(bill.hours * 4 * slow.node_bandwidth / bill.node_bandwidth)
    assert slow.idle_gpu_hours == pytest.approx((slow.hours - bill.hours) * 2)
    assert slow.idle_price == pytest.approx(slow.idle_gpu_hours * 7)


def test_the_first_epoch_fills_the_cache(store: StoreServer, tmp_path: Path) -> None:
    dataset, cached = open_there(store, tmp_path), replace(SHAPE, cache_bytes=1 << 40, bandwidth=1e5)
    one, three = (bill_of(dataset, "global", replace(cached, epochs=epochs), Prices()) for epochs in (1, 3))
    training, factor = SAMPLES / 200 / 3600, one.node_bandwidth / 1e5
    assert factor > 2
    assert one.hours == pytest.approx(training * factor)
    assert three.hours == pytest.approx(training * (factor + 2))
    assert three.requests == one.requests


def test_the_command(store: StoreServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = open_there(store, tmp_path)
    monkeypatch.setattr("headrace.data.open", lambda *_, **__: dataset)
    prices = tmp_path / "prices.json"
    prices.write_text('{"request": 1, "as_of": "today"}')
    options = ["--epochs", "3", "--ranks", "2", "--batch", "4", "--cache", "1GB", "--prices", str(prices)]
    ran = CliRunner().invoke(app, ["plan", "s3://bucket/shards/*.tar", *options, "--json", "-"])
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert [order["order"] for order in document["orders"]] == ["global", "windowed"]
    assert all(order["cached_share"] == 1 for order in document["orders"])
    assert all(order["request_price"] == order["requests"] for order in document["orders"])
    assert document["prices"]["as_of"] == "today"


@pytest.mark.parametrize("text", ["[]", "{", '{"reqest": 1}'])
def test_prices_of_another_form_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="--prices"):
        read_prices(path)
