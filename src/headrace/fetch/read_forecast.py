"""`forecast`: requests and bytes of a rank, by the plans of a run, without reading a sample."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import Dataset
from headrace.errors import UsageError
from headrace.fetch.ahead import FetchAhead
from headrace.fetch.read_groups import memory_limit
from headrace.plan import UniformPlan, mean_sample_bytes
from headrace.stores import LinkModel, Request, RequestCounts

_EPOCH = 1
_LEAST_STEPS = 64
_WINDOWS = 2
"""Windows to follow, so that their requests count as a whole."""


@dataclass(frozen=True)
class ReadForecast:
    """Reads of one rank in the middle of an epoch, in which no rank and no part of an epoch differs from another."""

    samples: float
    """Samples that were planned."""
    sample_bytes: int
    """Mean bytes of a sample."""
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
) -> ReadForecast:
    """Plan the reads of a rank from the middle of an epoch on, for `steps`, or at least 64 and two windows.

    `link` decides how ranges become requests. `cached_share`: part of the samples that a node's cache holds: the
    first of the dataset on one node, drawn at random on several.
    Raises UsageError if no column is in a store, or if no listing or index states the sizes.
    """
    remote = [column for column in columns if dataset.files(column).is_remote]
    if not remote:
        raise UsageError(f"expected samples in a store, got files on this machine: {dataset!r}")
    mean = mean_sample_bytes(dataset, remote)
    if mean is None:
        raise UsageError(f"expected samples of known sizes, such as those of tars or a listed prefix, got {dataset!r}")
    first, limit = plan.steps // 2, memory_limit(dataset, plan)
    engine = _CountingEngine(link)
    ahead = FetchAhead(
        dataset,
        remote,
        plan,
        epoch=_EPOCH,
        first_step=first,
        limit_bytes=limit,
        cached=_PartCached(len(dataset.table), cached_share, nodes > 1) if cached_share else None,
        engine=engine,
    )
    if steps is None:
        steps = max(_LEAST_STEPS, _WINDOWS * -(-plan.window_samples // plan.batch_size))
    first_bytes = 0
    for step in range(first, min(plan.steps, first + steps)):
        ahead.begin(step)
        first_bytes = first_bytes or engine.bytes
        ahead.end(step)
    samples = ahead.stats().wanted_bytes / mean / max(1e-9, 1 - cached_share)
    if not samples:
        return ReadForecast(0, mean, 0, 0, 0, limit)
    return ReadForecast(samples, mean, engine.requests / samples, engine.bytes / samples, first_bytes, limit)


class _CountingEngine:
    """Stand-in for a RequestEngine that answers each request at once, and counts it."""

    def __init__(self, link: LinkModel) -> None:
        self.requests = self.bytes = 0
        self._link = link

    def model(self) -> LinkModel:
        return self._link

    def fetch(self, requests: Sequence[Request]) -> Future[Any]:
        self.requests += len(requests)
        self.bytes += sum(each.bytes for each in requests)
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
