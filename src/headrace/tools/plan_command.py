"""`headrace plan`: requests, bytes, memory and money of a run over a store, before it starts."""

from __future__ import annotations

import json as json_text
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.errors import UsageError
from headrace.tools.terminal import Endpoint, Json, Profile, console_for, say, store_options, write_json

if TYPE_CHECKING:
    from headrace.data import Dataset
    from headrace.fetch import ReadForecast
    from headrace.plan import ShuffleOrder


@dataclass(frozen=True)
class Prices:
    """Prices in dollars, as of a date. `--prices` replaces any of them."""

    as_of: str = "2025-06, S3 Standard in us-east-1, read from the same region"
    request: float = 0.0004 / 1000
    egress_gb: float = 0.0
    gpu_hour: float = 3.0

    @property
    def gap_bytes(self) -> int:
        """Bytes that cost as much as a request."""
        return int(min(1e9 * self.request / self.egress_gb, 1e12)) if self.egress_gb else 10**12


@dataclass(frozen=True)
class RunShape:
    """Size of a run, and the machines that it has."""

    epochs: int
    ranks: int
    batch: int
    ranks_per_node: int
    cache_bytes: int
    """Bytes of a node's cache; 0 for none."""
    rate: float
    """Samples that a rank trains on in a second."""
    latency_s: float
    bandwidth: float
    """Bytes that a node receives in a second."""

    @property
    def lanes(self) -> int:
        """Lanes of the windowed order, so that no two ranks read the same block."""
        return max(8, self.ranks)


@dataclass(frozen=True)
class RunBill:
    """Cost of a run in one order. Figures are of all ranks and epochs, unless named otherwise."""

    order: str
    steps: int
    """Steps of an epoch."""
    requests: float
    read_bytes: float
    requests_per_sample: float
    """Requests for a sample in the first epoch, without a cache."""
    cached_share: float
    """Part of the samples that a node's cache holds from the second epoch on."""
    memory_bytes: int
    """Bytes in memory or on their way, in a rank."""
    first_batch_s: float
    """Time to fetch what the first step needs and what is read with it, at the node's bandwidth."""
    node_bandwidth: float
    """Bytes per second that a node needs to keep its ranks busy in the first epoch, before its cache holds anything."""
    hours: float
    idle_gpu_hours: float
    """GPU-hours for which ranks wait because a node has less bandwidth than they need."""
    request_price: float
    egress_price: float
    idle_price: float


def plan(
    source: Annotated[str, typer.Argument(help="Address or pattern of the data: s3://bucket/train-*.tar")],
    *,
    epochs: Annotated[int, typer.Option(min=1)] = 90,
    ranks: Annotated[int, typer.Option(min=1, help="GPUs of the run.")] = 8,
    batch: Annotated[int, typer.Option(min=1, help="Samples of a rank's batch.")] = 256,
    ranks_per_node: Annotated[int, typer.Option("--ranks-per-node", min=1)] = 8,
    cache: Annotated[str | None, typer.Option(help="Size of a node's cache, such as 2TB. Default: none.")] = None,
    rate: Annotated[float, typer.Option(min=1e-9, help="Samples that a rank trains on in a second.")] = 1000.0,
    bandwidth: Annotated[str, typer.Option(help="Bytes that a node receives in a second, such as 10GB.")] = "3GB",
    latency_ms: Annotated[float, typer.Option("--latency-ms", min=0, help="Time to a response's first byte.")] = 20.0,
    prices: Annotated[
        Path | None, typer.Option(help="JSON with any of request, egress_gb, gpu_hour (dollars) and as_of.")
    ] = None,
    index: Annotated[
        str | None, typer.Option(help="Merged index of the archives, as headrace index --to writes it.")
    ] = None,
    endpoint: Endpoint = None,
    profile: Profile = None,
    json: Json = None,
) -> None:
    """Forecast the requests, memory and cost of a run over a store, in both orders. No sample is read."""
    from headrace.cache import parse_size
    from headrace.data import open as open_dataset
    from headrace.plan import Windowed

    shape = RunShape(
        epochs=epochs,
        ranks=ranks,
        batch=batch,
        ranks_per_node=min(ranks_per_node, ranks),
        cache_bytes=0 if cache is None else parse_size(cache, cache, "--cache"),
        rate=rate,
        latency_s=latency_ms / 1e3,
        bandwidth=parse_size(bandwidth, bandwidth, "--bandwidth"),
    )
    priced, begun_s = read_prices(prices), time.monotonic()
    dataset = open_dataset(source, index=index, store_options=store_options(endpoint, profile) or None)
    opened_s = time.monotonic() - begun_s
    bills = [bill_of(dataset, order, shape, priced) for order in ("global", Windowed(lanes=shape.lanes))]
    say(console_for(json), plan_lines(dataset, shape, priced, bills, opened_s))
    document = {"opened_s": opened_s, "shape": asdict(shape), "prices": asdict(priced)}
    write_json(json, document | {"orders": [asdict(bill) for bill in bills]})


def read_prices(path: Path | None) -> Prices:
    """Return the prices of a JSON file, and the defaults for those it lacks. Raises UsageError."""
    if path is None:
        return Prices()
    try:
        given = json_text.loads(path.read_text())
        unknown = sorted(set(given) - {field.name for field in fields(Prices)})
        if unknown:
            raise ValueError(f"unknown names: {', '.join(unknown)}")
        return replace(Prices(), **given)
    except (OSError, ValueError, TypeError) as error:
        names = ", ".join(asdict(Prices()))
        raise UsageError(f"--prices: expected JSON with some of {names}, got {path}: {error}") from error


def bill_of(dataset: Dataset, order: ShuffleOrder, shape: RunShape, prices: Prices) -> RunBill:
    """Return the bill of a run in one order. Raises UsageError if the data is not in a store, or has no sizes."""
    from headrace.fetch import forecast
    from headrace.loader import Loader
    from headrace.plan import UniformPlan, mean_sample_bytes
    from headrace.stores import LinkModel, streams_of_rank

    loader = Loader(
        dataset, batch_size=shape.batch, shuffle=True, order=order, rank=shape.ranks // 2, world_size=shape.ranks
    )
    link = LinkModel(shape.latency_s, shape.bandwidth / shape.ranks_per_node, streams_of_rank(shape.ranks_per_node)[0])
    columns, plan = loader._feed.recipe.read_columns, loader._feed.recipe.plan
    assert isinstance(plan, UniformPlan), "no argument asks for another"
    first = forecast(dataset, columns, plan, link)
    nodes = -(-shape.ranks // shape.ranks_per_node)
    sample_bytes = mean_sample_bytes(dataset, columns)
    assert sample_bytes is not None, "without sizes there is no forecast"
    share = min(1.0, shape.cache_bytes / (sample_bytes * len(dataset)))
    later = forecast(dataset, columns, plan, link, cached_share=share, nodes=nodes) if share else first
    samples = len(dataset)
    requests = samples * (first.requests + (shape.epochs - 1) * later.requests)
    read_bytes = samples * (first.read_bytes + (shape.epochs - 1) * later.read_bytes)
    node_rate = shape.rate * shape.ranks_per_node
    epoch_hours = samples / (shape.ranks * shape.rate) / 3600

    def hours_of(reads: ReadForecast) -> float:
        """Return the hours of an epoch, longer than its training if a node receives less than its ranks need."""
        return epoch_hours * max(1.0, node_rate * reads.read_bytes / shape.bandwidth)

    hours = hours_of(first) + (shape.epochs - 1) * hours_of(later)
    idle = (hours - shape.epochs * epoch_hours) * shape.ranks
    return RunBill(
        order="global" if order == "global" else "windowed",
        steps=plan.steps,
        requests=requests,
        read_bytes=read_bytes,
        requests_per_sample=first.requests,
        cached_share=share,
        memory_bytes=first.ahead_bytes,
        first_batch_s=shape.latency_s + first.first_bytes / link.bandwidth,
        node_bandwidth=node_rate * first.read_bytes,
        hours=hours,
        idle_gpu_hours=idle,
        request_price=requests * prices.request,
        egress_price=read_bytes / 1e9 * prices.egress_gb,
        idle_price=idle * prices.gpu_hour,
    )


def plan_lines(
    dataset: Dataset, shape: RunShape, prices: Prices, bills: Sequence[RunBill], opened_s: float
) -> Iterator[str]:
    from rich.filesize import decimal

    yield f"{dataset!r}, opened in {opened_s:.1f} s"
    yield (
        f"{shape.epochs:,} epochs on {shape.ranks:,} ranks of {shape.batch:,}: {bills[0].steps:,} steps an epoch, "
        f"{shape.rate:,.0f} samples/s a rank"
    )
    for bill in bills:
        yield f"order={order_text(bill.order, shape)}"
        requests = (
            f"{bill.requests:,.0f} requests (${bill.request_price:,.0f}), {bill.requests_per_sample:.2f} a sample"
        )
        yield f"  {requests} in the first epoch"
        if bill.cached_share:
            yield f"  {bill.cached_share:.0%} of the samples from the node's cache in later epochs"
        yield f"  {decimal(int(bill.read_bytes))} read (${bill.egress_price:,.0f})"
        memory, first_s = decimal(int(bill.memory_bytes)), bill.first_batch_s
        yield f"  {memory} of memory a rank, {first_s:.1f} s until the first batch's bytes are there"
        yield (
            f"  a node needs {decimal(int(bill.node_bandwidth))}/s in the first epoch, and has "
            f"{decimal(int(shape.bandwidth))}/s: {bill.hours:,.1f} hours, {bill.idle_gpu_hours:,.0f} GPU-hours of "
            f"waiting (${bill.idle_price:,.0f})"
        )
    cheapest = min(bills, key=lambda bill: bill.request_price + bill.egress_price + bill.idle_price)
    yield f"Take order={order_text(cheapest.order, shape)}. Prices: {prices.as_of}"


def order_text(order: str, shape: RunShape) -> str:
    """Return the Loader's argument."""
    return "'global'" if order == "global" else f"hr.Windowed(lanes={shape.lanes})"
