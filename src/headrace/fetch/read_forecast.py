"""`forecast`: requests and bytes of a rank, by the plans of a run, without reading a sample."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import Dataset
from headrace.errors import UsageError
from headrace.fetch.ahead import FetchAhead
from headrace.fetch.read_groups import memory_limit
from headrace.plan import EpochPlan, UniformPlan, Windowed
from headrace.stores import STREAMS, LinkMeter, LinkModel, Request, RequestCounts, RequestPlan, WantedRanges

_EPOCH = 1
_WHOLE_SAMPLES = 1 << 14
"""Samples of a rank's epoch up to which it is planned as a whole."""
_LEAST_STEPS = 64
_WINDOWS = 2
"""Windows to follow, so that their requests count as a whole."""
_NOTABLE = 4
"""Requests of the global order, as a multiple of those in windows, from which they are reported."""
_REPORT_SAMPLES = 1 << 12
"""Samples of a rank's epoch up to which a report plans it as a whole: some tenths of a second."""
_REPORT_BYTES = 64 << 20
_log = logging.getLogger("headrace")


@dataclass(frozen=True)
class ReadForecast:
    """Reads of one rank in the middle of an epoch, in which no rank and no part of an epoch differs from another."""

    samples: float
    """Samples that were planned."""
    requests: float
    """Requests for a sample; a cached sample counts, with none."""
    read_bytes: float
    """Bytes read for a sample: its own, and a share of the gaps between samples."""
    first_bytes: int
    """Bytes requested before the first step begins: its own, and what later steps need, as far as memory has room."""
    ahead_bytes: int
    """Maximum bytes in memory or on their way, on a machine with the memory of this one."""


def forecast(
    dataset: Dataset,
    columns: Sequence[str],
    plan: UniformPlan,
    link: LinkModel,
    *,
    cached_share: float = 0.0,
    nodes: int = 1,
    steps: int | None = None,
    limit_bytes: int | None = None,
) -> ReadForecast:
    """Plan the reads of a rank: of an epoch, or of a large one from its middle on, for 64 steps and two windows.

    `link` decides how ranges become requests. `cached_share`: part of the samples that a node's cache holds: the
    first of the dataset on one node, drawn at random on several. `steps`: steps to follow from the middle.
    `limit_bytes`: bytes in memory or on their way; default: the limit of a run here.
    Raises UsageError if no column is in a store, or if no listing or index states the sizes.
    """
    remote = [column for column in columns if dataset.files(column).is_remote]
    if not remote:
        raise UsageError(f"expected samples in a store, got files on this machine: {dataset!r}")
    is_whole = steps is None and plan.rank_samples <= _WHOLE_SAMPLES
    first, limit = 0 if is_whole else plan.steps // 2, limit_bytes or memory_limit(dataset, plan)
    # A run plans what memory has room for before the link is measured.
    engine = _CountingEngine(LinkMeter().model(link.streams, 0.0) if is_whole else link)
    ahead = FetchAhead(
        dataset,
        remote,
        plan,
        epoch=_EPOCH,
        first_step=first,
        limit_bytes=limit,
        cached=_PartCached(len(dataset.table), cached_share, nodes > 1) if cached_share else None,
        engine=engine,
        first_apart=is_whole,
    )
    if steps is None:
        steps = plan.steps if is_whole else max(_LEAST_STEPS, _WINDOWS * -(-plan.window_samples // plan.batch_size))
    first_bytes = 0
    for step in range(first, min(plan.steps, first + steps)):
        ahead.begin(step)
        engine.link = link
        first_bytes = first_bytes or engine.bytes
        ahead.end(step)
    if engine.is_guess:
        raise UsageError(f"expected samples of known sizes, such as those of tars or a listed prefix, got {dataset!r}")
    fetched = ahead.places / len(remote)
    if not fetched:
        return ReadForecast(0, 0, 0, 0, limit)
    samples = plan.rank_samples if is_whole else fetched / (1 - cached_share)
    return ReadForecast(samples, engine.requests / samples, engine.bytes / samples, first_bytes, limit)


def global_order_report(
    dataset: Dataset, columns: Sequence[str], plan: EpochPlan
) -> Callable[[int, WantedRanges, RequestPlan], None] | None:
    """Return a function that logs what an epoch of the global order reads, and what windows would read.

    It takes the samples of a round, their ranges and requests. None if there is nothing to log: on other ranks than the
    first, and for another order.
    """
    is_global = isinstance(plan, UniformPlan) and plan.shuffle and plan.window is None and plan.draws is None
    if not is_global or plan.rank:
        return None
    assert isinstance(plan, UniformPlan)

    def report(samples: int, ranges: WantedRanges, requests: RequestPlan) -> None:
        if requests.request_count <= _NOTABLE * ranges.bytes / requests.request_bytes:
            return  # windows take as many at least
        shape = Windowed(lanes=max(Windowed.lanes, plan.world_size)).resolve(dataset)
        limits: dict[str, int] = {}
        if plan.rank_samples > _REPORT_SAMPLES:  # blocks cost the same in smaller windows
            shape, limits = replace(shape, blocks=shape.lanes), {"steps": 1, "limit_bytes": _REPORT_BYTES}
        try:
            windows = forecast(dataset, columns, replace(plan, window=shape), LinkMeter().model(STREAMS, 0.0), **limits)
        except UsageError:  # objects of unknown sizes take a request each, in any order
            return
        if requests.request_count > _NOTABLE * samples * windows.requests:
            epoch = plan.length / samples
            _log.warning(
                "order: the global order takes some %s requests and %.1f GB for an epoch of %.1f GB; order='windowed' "
                "takes about %s requests and %.1f GB. `headrace plan` prints both",
                f"{epoch * requests.request_count:,.0f}",
                epoch * requests.bytes / 1e9,
                epoch * ranges.bytes / 1e9,
                f"{plan.length * windows.requests:,.0f}",
                plan.length * windows.read_bytes / 1e9,
            )

    return report


class _CountingEngine:
    """Stand-in for a RequestEngine that answers each request at once, and counts it."""

    def __init__(self, link: LinkModel) -> None:
        self.requests = self.bytes = 0
        self.is_guess = False
        """True if a request was for an object of unknown size."""
        self.link = link

    def model(self) -> LinkModel:
        return self.link

    def fetch(self, requests: Sequence[Request]) -> Future[Any]:
        self.requests += len(requests)
        self.bytes += sum(each.bytes for each in requests)
        self.is_guess = self.is_guess or any(each.with_rest for each in requests)
        answered: Future[Any] = Future()
        answered.set_result(b"")
        return answered

    def counts(self) -> tuple[RequestCounts, dict[float, float | None]]:
        return RequestCounts(requests=self.requests, bytes=self.bytes), {}

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class _PartCached:
    """Cache that holds a part of the samples."""

    samples: int
    share: float
    is_random: bool

    def __call__(self, _: str, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        places = _core.permute(self.samples, _EPOCH, ids) if self.is_random else ids
        held: NDArray[np.bool_] = places < self.share * self.samples
        return held
