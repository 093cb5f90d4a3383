"""`forecast` and `headrace plan` against the requests that a Loader makes, and against bills made up by hand."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from remote_runs import SAMPLES, WINDOWED, loader, open_here, open_there
from servers import StoreServer
from typer.testing import CliRunner

from headrace.errors import UsageError
from headrace.fetch import forecast
from headrace.stores import LinkModel
from headrace.stores.link import LinkMeter
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
    first = loader(dataset, order=order)
    first.set_epoch(1)
    half = len(first) // 2
    batches = iter(first)
    for _ in range(half):
        next(batches)
    resumed = loader(dataset, order=order)
    resumed.load_state_dict(first.state_dict())
    batches.close()
    assert sum(len(batch["label"]) for batch in resumed) == SAMPLES - half * 5
    counted = resumed.stats().fetch
    assert counted is not None
    recipe = first._feed.recipe
    found = forecast(dataset, recipe.read_columns, recipe.plan, LINK)
    assert round(found.requests * found.samples) == counted.counts.requests
    assert round(found.read_bytes * found.samples) == counted.counts.bytes
    assert found.samples * found.sample_bytes == pytest.approx(counted.wanted_bytes)


def test_a_cached_share_is_not_read(store: StoreServer, tmp_path: Path) -> None:
    dataset = open_there(store, tmp_path)
    plan = loader(dataset)._feed.recipe.plan
    whole, half, none = (forecast(dataset, ["image"], plan, LINK, cached_share=share) for share in (0.0, 0.5, 1.0))
    assert 0 < half.read_bytes < whole.read_bytes
    assert (none.requests, none.read_bytes) == (0, 0)


@pytest.mark.parametrize("order", ["global", WINDOWED], ids=["global", "windowed"])
def test_the_cost_of_the_global_order_is_logged_once(
    order: Any,
    store: StoreServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(LinkMeter, "model", lambda *_, **__: replace(LINK, latency_s=0.0))
    read = loader(open_there(store, tmp_path), order=order)
    with caplog.at_level(logging.WARNING, "headrace"):
        for _ in range(2):
            for _ in read:
                pass
    requests = [int(str(record.args[0])) for record in caplog.records if record.args]
    stats = read.stats()
    assert stats is not None
    assert stats.fetch is not None
    assert len(requests) == (order == "global")
    assert all(stats.fetch.counts.requests / 3 < each < stats.fetch.counts.requests * 3 for each in requests)


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
