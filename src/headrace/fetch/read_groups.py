"""Groups of reads that are planned together (steps, or windows), and the limit of their bytes in memory."""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.errors import UsageError
from headrace.fetch.objects import NumberedObject
from headrace.plan import EpochPlan, ReadGroup, UniformPlan, mean_sample_bytes, reads_by_step
from headrace.stores import WantedRanges
from headrace.system import available_to_rank

_log = logging.getLogger("headrace")

_LEAST_BYTES, _MOST_BYTES = 64 << 20, 1 << 30
_MEMORY_SHARE = 8
"""Share (1/n) of the available memory that prefetched bytes may take."""
_WINDOWS = 2
"""Windows in memory: batches are made from one while the next is on its way. A part of a window is released with its
last sample, which is near the window's end."""
_FIRST_SHARE = 16
"""Share (1/n) of the first window whose samples are fetched one by one."""

Ints: TypeAlias = NDArray[np.int64]
Place: TypeAlias = tuple[str, int]
"""Column, and a sample's position in the dataset."""


@dataclass(frozen=True, eq=False)
class WantedPlaces:
    """Ranges of existing samples, with the column and sample of each range."""

    places: list[Place]
    ranges: WantedRanges
    objects: list[NumberedObject]
    """Objects of the ranges."""

    def only(self, rows: Ints) -> WantedPlaces:
        return WantedPlaces([self.places[row] for row in rows.tolist()], self.ranges.only(rows), self.objects)


@dataclass(frozen=True, eq=False)
class LocatedGroup:
    """Samples that are planned together, with their ranges column by column, and the cached samples."""

    first_step: int
    wanted: list[WantedPlaces]
    cached: set[Place]

    @property
    def count(self) -> int:
        return sum(len(each.places) for each in self.wanted)

    def used(self) -> Iterator[tuple[int, Place]]:
        """Yield the step of each sample with the sample."""
        for wanted in self.wanted:
            yield from zip(wanted.ranges.need.tolist(), wanted.places, strict=True)


@dataclass(eq=False)
class ReadRound:
    """Groups with requests that are planned at once, and the ranges to fetch: the rest is in memory or cached."""

    groups: list[LocatedGroup] = field(default_factory=list)
    _fetched: list[list[WantedPlaces]] = field(default_factory=list)
    _places: set[Place] = field(default_factory=set)

    def add(self, group: LocatedGroup, in_memory: Container[Place]) -> int:
        """Add a group, and return the bytes to fetch for it."""
        fetched = []
        for wanted in group.wanted:
            rows = []
            for row, place in enumerate(wanted.places):  # a step may have a sample twice
                if place not in in_memory and place not in self._places and place not in group.cached:
                    self._places.add(place)
                    rows.append(row)
            fetched.append(wanted if len(rows) == len(wanted.places) else wanted.only(np.array(rows, np.int64)))
        self.groups.append(group)
        self._fetched.append(fetched)
        return sum(each.ranges.bytes for each in fetched)

    def cut(self, count: int) -> list[LocatedGroup]:
        """Retain the first `count` groups, at least one and not all, and return the others."""
        count = min(max(1, count), len(self.groups) - 1)
        cut = self.groups[count:]
        del self.groups[count:], self._fetched[count:]
        return cut

    def fresh(self) -> Iterator[Place]:
        """Yield the samples to fetch, in the order of their ranges."""
        for wanted in chain.from_iterable(self._fetched):
            yield from wanted.places

    def ranges(self) -> WantedRanges:
        """Return the ranges to fetch."""
        return WantedRanges.joined([wanted.ranges for wanted in chain.from_iterable(self._fetched)])


def groups_of(
    plan: EpochPlan, epoch: int, first_step: int, *, first_apart: bool = True
) -> tuple[Iterator[ReadGroup], int]:
    """Return the groups to plan together, in order, and how many of the first groups are requested separately.

    `first_apart`: the first steps of a window come before the window, sample by sample. The first batch needs a part of
    each block, and would otherwise wait for half of the window.
    """
    if not isinstance(plan, UniformPlan):
        return reads_by_step(plan, epoch, first_step), 0
    groups = plan.reads(epoch, first_step)
    if not plan.window_samples or not first_apart:
        return groups, 0
    steps = max(1, plan.window_samples // (_FIRST_SHARE * plan.batch_size))
    first = list(islice(reads_by_step(plan, epoch, first_step), steps))
    return chain(first, groups), len(first)


def memory_limit(dataset: Dataset, plan: EpochPlan) -> int:
    """Return how many bytes of a pass may be in memory or on their way: two windows at least."""
    limit = min(_MOST_BYTES, max(_LEAST_BYTES, (available_to_rank() or 0) // _MEMORY_SHARE))
    return max(limit, _windows_bytes(dataset, plan))


def check_window_memory(dataset: Dataset, columns: Sequence[str], plan: EpochPlan) -> None:
    """Raise UsageError if a plan's windows of remote samples do not fit into the memory that this rank may take.

    Samples count with the mean of the dataset; nothing is checked if the lengths are unknown. For values that are read
    by pages, a batch of the global order has to fit with a page for each of its samples. A log line warns if ranks
    share lanes.
    """
    if not any(dataset.files(column).is_remote for column in columns):
        return
    _check_batch_memory(dataset, columns, plan)
    _report_shared_lanes(plan)
    needed, free = _windows_bytes(dataset, plan), available_to_rank()
    if free is None or needed <= free:
        return
    assert isinstance(plan, UniformPlan)
    assert plan.window is not None
    fits = int(plan.window.blocks * free / needed)
    advice = f"Pass order=hr.Windowed(window_blocks={fits})" if fits else "Lower block_bytes of hr.Windowed(…)"
    raise UsageError(
        f"order: expected windows of remote samples of which two, one in use and one on its way, fit into the "
        f"{free / 1e9:,.1f} GB of memory that are free for this rank, got {plan.window_samples:,} samples of "
        f"{mean_sample_bytes(dataset):,} bytes in each = {needed / 1e9:,.1f} GB. {advice}"
    )


def _report_shared_lanes(plan: EpochPlan) -> None:
    """Log, on the first rank, that ranks share lanes: each then fetches the same blocks for its part of their samples.

    More lanes would be another order, which cannot resume a saved state.
    """
    window = plan.window if isinstance(plan, UniformPlan) else None
    if window is not None and plan.rank == 0 and plan.world_size > window.lanes:
        _log.warning(
            "order: %d ranks share the %d lanes of this windowed order, so that the same blocks are fetched by up to "
            "%d ranks. Pass order=hr.Windowed(lanes=%d), or as many as the run may grow to; the order is another then",
            plan.world_size,
            window.lanes,
            -(-plan.world_size // window.lanes),
            plan.world_size,
        )


def _windows_bytes(dataset: Dataset, plan: EpochPlan) -> int:
    """Return the bytes of the windows in memory, by the mean of the dataset; 0 without windows.

    A block of values that are read by pages begins and ends in the middle of a page.
    """
    if not isinstance(plan, UniformPlan) or not plan.window_samples:
        return 0
    assert plan.window is not None
    edges = plan.window.blocks * sum(_unit_bytes(dataset, dataset.fields))
    return _WINDOWS * (plan.window_samples * (mean_sample_bytes(dataset) or 0) + edges)


def _check_batch_memory(dataset: Dataset, columns: Sequence[str], plan: EpochPlan) -> None:
    units, free = _unit_bytes(dataset, columns), available_to_rank()
    if not units or free is None or not isinstance(plan, UniformPlan) or plan.window_samples:
        return
    needed = plan.batch_size * sum(units)
    if needed > free:
        raise UsageError(
            f"order: expected batches whose pages of parquet fit into the {free / 1e9:,.1f} GB of memory that are free "
            f"for this rank, got {plan.batch_size:,} samples that are read by {sum(units):,} bytes each = "
            f"{needed / 1e9:,.1f} GB. Pass order='windowed', which reads neighbours together"
        )


def _unit_bytes(dataset: Dataset, columns: Iterable[str]) -> list[int]:
    """Return the mean bytes of a page of each column whose values are read by pages."""
    held = [dataset.table.bytes_of(column).unit_bytes for column in columns if dataset.has_bytes(column)]
    return [each for each in held if each is not None]
