"""Prefetch of remote bytes for the next steps of a pass, handed to the core in memory.

The plan lists the samples of every later step, so reads are planned for a round of steps at a time. A request covers
neighbouring samples, and the most urgent requests go first, within the limit of memory.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from headrace.data import Dataset, HeldParts
from headrace.fetch.fetch_stats import FetchStats, WaitClock
from headrace.fetch.parts import FetchCancelled, Part, RangeFetcher
from headrace.fetch.read_groups import (
    Ints,
    LocatedGroup,
    Place,
    ReadRound,
    WantedPlaces,
    groups_of,
    memory_limit,
)
from headrace.fetch.sample_locator import Cached, SampleLocator
from headrace.fetch.sharing import SharedCache, SharedFetching
from headrace.plan import EpochPlan
from headrace.stores import (
    RequestEngine,
    RequestPlan,
    WantedRanges,
    plan_requests,
)

_NOW = -1
"""Need of bytes that a thread already waits for, ahead of every step."""
_ROUNDS = 4
"""Number of rounds that share the memory: while one is used up, others are on their way."""
_MOST_PLACES = 1 << 16
"""Maximum places (column, sample) planned ahead. Cached samples take no memory for bytes, but time to look up."""


class FetchAhead:
    """Remote bytes of one pass. One thread begins and ends steps, in order; any thread requests bytes."""

    def __init__(
        self,
        dataset: Dataset,
        columns: Sequence[str],
        plan: EpochPlan,
        *,
        epoch: int,
        first_step: int,
        limit_bytes: int,
        cached: Cached | None = None,
        shared: SharedCache | None = None,
        engine: RangeFetcher | None = None,
        first_apart: bool = True,
        report: Callable[[int, WantedRanges, RequestPlan], None] | None = None,
    ) -> None:
        """Fetch these columns from `first_step` on, except `cached` samples, and those that others fetch into `shared`.

        Closing also closes the engine and `shared`.

        At most `limit_bytes` are in memory or on their way. The step that begins may need more than is left of them.
        Then only its own samples, or its windows, are fetched, without the bytes between samples.

        `first_apart`: True if the first steps of a window are fetched sample by sample. `report`: function to call
        once, with the samples of the first round, their ranges and the requests for them.
        """
        self._columns, self._limit = tuple(columns), limit_bytes
        self._shared = None if shared is None else SharedFetching(shared)
        self._groups, self._alone = groups_of(plan, epoch, first_step, first_apart=first_apart)
        self._report = report
        self.places = 0
        """Places that were planned to be fetched."""
        self._next = next(self._groups, None)
        self._put_back: deque[LocatedGroup] = deque()
        """Groups before the next one that memory had no room for."""
        self._read_share = 1.0
        """Ratio of read to wanted bytes in the last round."""
        self._lock = threading.Lock()
        self._part_of: dict[Place, Part | None] = {}
        """Part of each place; None for a cached sample, or one to fetch again."""
        self._by_range: WeakValueDictionary[tuple[int, int, int], Part] = WeakValueDictionary()
        """Parts by the pages in them, as (object, start, stop), for columns whose samples share pages."""
        self._uses: Counter[Place] = Counter()
        self._steps: defaultdict[int, list[Place]] = defaultdict(list)
        self._held_bytes = self._wanted_bytes = 0
        self.waits = WaitClock()
        self._engine: RangeFetcher = engine or RequestEngine()  # after all that may fail
        self._locator = SampleLocator(dataset, columns, cached, self._engine)

    @classmethod
    def of(
        cls,
        dataset: Dataset,
        columns: Sequence[str],
        plan: EpochPlan,
        *,
        epoch: int,
        first_step: int,
        cached: Cached | None = None,
        shared: SharedCache | None = None,
        report: Callable[[int, WantedRanges, RequestPlan], None] | None = None,
    ) -> FetchAhead | None:
        """Return a prefetcher for the remote ones of these columns; None if all files are on this machine."""
        remote = [column for column in columns if dataset.files(column).is_remote]
        if not remote:
            return None
        return cls(
            dataset,
            remote,
            plan,
            epoch=epoch,
            first_step=first_step,
            limit_bytes=memory_limit(dataset, plan),
            cached=cached,
            shared=shared,
            report=report,
        )

    def is_there(self, step: int) -> bool:
        """Return True if all bytes that a step needs have arrived; False for a step that is not planned yet."""
        with self._lock:
            places = list(self._steps.get(step, ()))
            parts = [self._part_of[place] for place in places]
        if not self.is_planned(step) or not all(part is None or part.data.done() for part in parts):
            return False
        return self._shared is None or not self._shared.is_coming(places)

    def is_planned(self, step: int) -> bool:
        """Return True if all bytes that a step needs are requested or cached."""
        first = self._unplanned
        return first is None or first > step

    def begin(self, step: int) -> None:
        """Plan the reads of `step`, and of as many later steps as memory has room for."""
        while self._unplanned is not None:
            is_needed = not self.is_planned(step)
            if not is_needed and not self._has_room():
                return
            if not self._plan_round(is_needed=is_needed):
                return

    def _has_room(self) -> bool:
        """Return True if another round may be planned ahead."""
        has_memory = self._held_bytes + self._limit // _ROUNDS <= self._limit
        return has_memory and len(self._part_of) < _MOST_PLACES

    @property
    def _unplanned(self) -> int | None:
        """First step with unplanned reads; None if everything is planned."""
        if self._put_back:
            return self._put_back[0].first_step
        return None if self._next is None else self._next.first_step

    def end(self, step: int) -> None:
        """Release the bytes of a step once all its samples are decoded."""
        with self._lock:
            places = self._steps.pop(step, [])
            for place in places:
                self._uses[place] -= 1
                if self._uses[place]:
                    continue
                del self._uses[place]
                part = self._part_of.pop(place)
                if part is not None:
                    part.places -= 1
                    self._held_bytes -= 0 if part.places else part.bytes
        if self._shared is not None:
            self._shared.forget(places)

    def held(self, column: str, samples: Ints, *, all_of_them: bool = False) -> HeldParts | None:
        """Return the bytes of the samples at these positions; samples that are in no step are fetched now.

        Cached samples are left out, unless `all_of_them` is set. None for a column whose files are on this machine.
        Raises FetchCancelled, or the error of the fetch.
        """
        if column not in self._columns:
            return None
        places = [(column, sample) for sample in samples.tolist()]
        with self._lock:
            known = {place: self._part_of[place] for place in places if place in self._part_of}
        parts = {place: part for place, part in known.items() if part is not None}
        skipped = set() if all_of_them else known.keys() - self._overdue(known)
        rows = [row for row, place in enumerate(places) if place not in parts and place not in skipped]
        missing = np.array(rows, np.int64)
        if len(missing):
            wanted = self._locator.wanted(column, samples[missing], np.full(len(missing), _NOW))
            plan = plan_requests(wanted.ranges, self._engine.model())
            parts |= zip(wanted.places, self._fetch(wanted.ranges, plan), strict=True)
        numbers = {part: number for number, part in enumerate(dict.fromkeys(parts.values()))}
        held_in = [numbers[parts[place]] if place in parts else -1 for place in places]
        found = list(numbers)
        return HeldParts(
            [self._data(part) for part in found],
            [part.first for part in found],
            np.array(held_in, np.int64),
            [part.unpacked for part in found],
        )

    def _overdue(self, places: Iterable[Place]) -> set[Place]:
        """Wait for the bytes that other passes fetch, and return the places that have to be fetched here."""
        if self._shared is None or not self._shared.is_coming(places):
            return set() if self._shared is None else self._shared.overdue(places)
        with self.waits.batch_waits():
            return self._shared.overdue(places)

    def forget(self, sample: int) -> bool:
        """Release a sample's bytes, so that the next request fetches them again.

        Return False if all its files are on this machine.
        """
        with self._lock:
            for place in ((column, sample) for column in self._columns):
                part = self._part_of.get(place)
                if part is not None:
                    self._part_of[place] = None
                    part.places -= 1
                    self._held_bytes -= 0 if part.places else part.bytes
        return bool(self._columns)

    def close(self) -> None:
        """End the thread and release everything. Threads that wait for bytes get FetchCancelled."""
        self._engine.close()
        if self._shared is not None:
            self._shared.close()

    def stats(self) -> FetchStats:
        counts, latency_s = self._engine.counts()
        with self._lock:
            held, wanted = self._held_bytes, self._wanted_bytes
        return FetchStats(counts, latency_s, held, wanted, self.waits.wait_s, self.waits.stall_s)

    def _plan_round(self, *, is_needed: bool) -> bool:
        """Plan the requests of as many next steps as fit together. Return True if any fit.

        If the first step `is_needed`, it is planned in any case.
        """
        link, room = self._engine.model(), self._limit - self._held_bytes
        found = self._next_round()
        ranges = found.ranges()
        plan = plan_requests(ranges, link)
        while plan.bytes > room and len(found.groups) > 1:
            self._return(found.cut(int(len(found.groups) * room / plan.bytes)))
            ranges = found.ranges()
            plan = plan_requests(ranges, link)
        if plan.bytes > room:
            plan = plan_requests(ranges, link, gap_bytes=0)
            if plan.bytes > room and not is_needed:
                self._return(found.groups)
                return False
        self._keep(found, self._fetch(ranges, plan))
        self.places += len(ranges)
        if self._report is not None and len(ranges):
            self._report(-(-len(ranges) // len(self._columns)), ranges, plan)
            self._report = None
        self._alone = max(0, self._alone - len(found.groups))
        self._read_share = max(1.0, plan.bytes / max(1, ranges.bytes))
        return True

    def _return(self, groups: list[LocatedGroup]) -> None:
        """Put groups back that memory has no room for."""
        if self._shared is not None:
            self._shared.unclaim(groups, self._part_of)
        self._put_back.extendleft(reversed(groups))

    def _next_round(self) -> ReadRound:
        """Take unplanned groups: as many as are expected to read a round's share of the memory."""
        found = ReadRound()
        wanted_bytes = places = 0
        most_bytes, most_places = max(1, self._limit // _ROUNDS), _MOST_PLACES // _ROUNDS
        while self._unplanned is not None and wanted_bytes * self._read_share < most_bytes and places < most_places:
            if self._put_back:
                group = self._put_back.popleft()
            else:
                assert self._next is not None
                group = self._locator.group(self._next)
                for column, wanted in zip(self._columns, group.wanted, strict=True):
                    if column in self._locator.paged:
                        self._share(wanted)
                self._next = next(self._groups, None)
            if self._shared is not None:
                self._shared.claim(group, self._part_of)
            wanted_bytes += found.add(group, self._part_of)
            places += group.count
            if self._alone:
                break
        return found

    def _keep(self, found: ReadRound, parts: list[Part]) -> None:
        """Record the part of each new sample of a round, and the steps that use each sample."""
        with self._lock:
            for group in found.groups:
                for place in group.cached:
                    self._part_of.setdefault(place, None)
            for place, part in zip(found.fresh(), parts, strict=True):
                self._part_of[place] = part
                part.places += 1
            for group in found.groups:
                for step, place in group.used():
                    self._steps[step].append(place)
                    self._uses[place] += 1
            self._held_bytes += sum(part.bytes for part in set(parts))
        if self._shared is not None:
            of_part: defaultdict[Part, list[Place]] = defaultdict(list)
            for place, part in zip(found.fresh(), parts, strict=True):
                of_part[part].append(place)
            for part, places in of_part.items():
                self._shared.hand_out(places, part)

    def _fetch(self, ranges: WantedRanges, plan: RequestPlan) -> list[Part]:
        """Request ranges, and return the part that will hold each range."""
        parts: dict[int, Part] = {}
        for number in plan.by_need():
            of = self._locator.objects[int(plan.object[number])]
            is_known = of.expected_bytes is None
            requests = list(plan.requests(number, of.path)) if is_known else [of.request(int(plan.need[number]))]
            size = int(plan.stop[number] - plan.start[number])
            part = parts[number] = Part(requests[0].start, size, self._engine.fetch(requests), of)
            if not is_known:
                part.data.add_done_callback(partial(self._correct, part))
        with self._lock:
            self._wanted_bytes += ranges.bytes
        found = [parts[number] for number in plan.part_of.tolist()]
        if self._locator.paged:
            keys = zip(ranges.object.tolist(), ranges.start.tolist(), ranges.stop.tolist(), strict=True)
            self._by_range.update(zip(keys, found, strict=True))
        return found

    def _correct(self, part: Part, data: Future[Any]) -> None:
        """Count an object of formerly unknown size with the bytes that it has."""
        if data.cancelled() or data.exception() is not None:
            return
        size = memoryview(data.result()).nbytes
        with self._lock:
            more, part.bytes = size - part.bytes, size
            self._wanted_bytes += more
            self._held_bytes += more if part.places else 0
            self._locator.expected_size.add(size)

    def _share(self, wanted: WantedPlaces) -> None:
        """Give samples the parts that hold their pages for others, so that these are not fetched again."""
        ranges = wanted.ranges
        keys = zip(ranges.object.tolist(), ranges.start.tolist(), ranges.stop.tolist(), strict=True)
        with self._lock:
            for place, key in zip(wanted.places, keys, strict=True):
                part = self._by_range.get(key)
                if part is not None and part.places and place not in self._part_of:
                    self._part_of[place] = part
                    part.places += 1

    def _data(self, part: Part) -> Any:
        """Wait for a part's bytes, and return them."""
        if part.data.done() and not part.data.cancelled():
            return part.data.result()
        try:
            with self.waits.batch_waits():
                return part.data.result()  # each attempt of a request has its deadline
        except CancelledError:
            raise FetchCancelled from None
