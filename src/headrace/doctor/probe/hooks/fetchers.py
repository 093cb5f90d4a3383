"""Hooks on DataLoader's fetchers: the time of the dataset, and of collate."""

from __future__ import annotations

import time
from types import ModuleType
from typing import Any

from ..batch_production import BatchRecorder, ProducedBatch
from ..evidence_file import EvidenceFile
from ..first_batches import MOST_FIRST, FirstBatchDigests
from ..overhead import NOBODY
from ..patches import Function
from ..stages import CallTimer, timed
from ..training.training import TrainingObserver

FETCHES = "_headrace_fetches"
"""Attribute of a fetcher: its `_Fetches`."""


def install_fetchers(
    timer: CallTimer,
    batches: BatchRecorder,
    training: TrainingObserver,
    evidence: EvidenceFile | None,
    fetch: ModuleType,
) -> None:
    """Hook torch.utils.data._utils.fetch, which workers and num_workers=0 share.

    First batches are digested into `evidence`, if there is any.
    """
    hook, unseen = _FetchHook(timer, batches, training, evidence), "the making of batches was"
    timer.patches.hook_around(fetch, "_BaseDatasetFetcher.__init__", hook.new_fetcher, unseen)
    for name in ("_MapDatasetFetcher", "_IterableDatasetFetcher"):
        timer.patches.hook_around(fetch, f"{name}.fetch", hook.fetch, unseen)


class _Fetches:
    __slots__ = ("collate", "collate_fn", "fetched", "first", "hook", "made", "pass_")

    def __init__(self, hook: _FetchHook, pass_: int) -> None:
        self.hook = hook
        self.pass_ = pass_
        self.made = 0
        """Batches made in a process without a worker loop."""
        self.fetched = 0
        """Batches fetched in total."""
        self.first: FirstBatchDigests | None = None
        self.collate_fn: Function | None = None
        self.collate: Function | None = None
        """Timed stand-in for its collate_fn."""


class _FetchHook:
    """Hook that times every fetch of a process."""

    def __init__(
        self,
        timer: CallTimer,
        batches: BatchRecorder,
        training: TrainingObserver,
        evidence: EvidenceFile | None,
    ) -> None:
        self._timer = timer
        self._evidence = evidence
        self._batches = batches
        self._thread = training.thread
        self._counter = training.counter
        self._rest = timer.stage("getitem", "rest")
        self._unknown = 0
        guard = batches.guard
        self._count, self._begin, self._end = guard(self._count_pass), guard(self._begin_fetch), guard(self._end_fetch)
        self._digest = guard(self._digest_batch)

    def new_fetcher(self, original: Function, fetcher: Any, *args: Any, **kwargs: Any) -> None:
        self._count(fetcher)
        original(fetcher, *args, **kwargs)

    def fetch(self, original: Function, fetcher: Any, index: Any) -> Any:
        if self._thread.observed == NOBODY:
            return original(fetcher, index)
        under_way: _Fetch | None = self._begin(fetcher, index)
        if under_way is None:
            return original(fetcher, index)
        try:
            data = original(under_way.stand_in, index)
            under_way.batch.is_done = True
            if under_way.first is not None:
                self._digest(under_way, index, data)
            return data
        finally:
            under_way.keep_changes()
            self._end(under_way)

    def _count_pass(self, fetcher: Any) -> None:
        """Number the pass. A pass that the training thread does not begin gets a negative number."""
        number = self._counter.opening
        if number is None:
            self._unknown -= 1
            number = self._unknown
        setattr(fetcher, FETCHES, _Fetches(self, number))

    def _begin_fetch(self, fetcher: Any, index: Any) -> _Fetch | None:
        batch = self._batches.current()
        if batch is not None and batch.is_fetching:
            # The dataset itself runs a loader, which is part of the dataset's own code.
            return None
        known = self._known(fetcher)
        is_here = batch is None
        if batch is None:  # a process without a worker loop
            known.made += 1
            batch = self._batches.begin(known.pass_, known.made - 1)  # begin() counts its own cost
        begun = time.monotonic_ns()
        batch.is_fetching = True
        fetch = _Fetch(self._batches, self._rest, batch, is_here)
        fetch.first = self._first(known, fetcher)
        fetch.stand_in_for(fetcher, self._collate(fetcher, known), index)
        known.fetched += 1
        self._batches.cost.total_ns += time.monotonic_ns() - begun
        return fetch

    def _first(self, known: _Fetches, fetcher: Any) -> FirstBatchDigests | None:
        if self._evidence is None or known.fetched >= MOST_FIRST:
            known.first = None
        elif known.fetched == 0:
            known.first = FirstBatchDigests(self._evidence, fetcher, self._batches.opened)
        if known.first is not None:
            known.first.begin()
        return known.first

    def _digest_batch(self, fetch: _Fetch, keys: Any, data: Any) -> None:
        begun = time.monotonic_ns()
        if fetch.first is not None:
            fetch.first.end(fetch.batch, keys, data)
        self._batches.cost.total_ns += time.monotonic_ns() - begun

    def _collate(self, fetcher: Any, known: _Fetches) -> Function:
        if known.collate is None or known.collate_fn is not fetcher.collate_fn:
            known.collate_fn = fetcher.collate_fn
            function = getattr(fetcher.collate_fn, "func", fetcher.collate_fn)
            stage = self._timer.stage("collate", getattr(function, "__qualname__", type(function).__qualname__))
            known.collate = timed(self._timer.stages, stage)(fetcher.collate_fn)
        return known.collate

    def _known(self, fetcher: Any) -> _Fetches:
        known: _Fetches | None = getattr(fetcher, FETCHES, None)
        if known is None or known.hook is not self:  # older than the probe
            self._count_pass(fetcher)
            known = getattr(fetcher, FETCHES)
        assert known is not None
        return known

    def _end_fetch(self, fetch: _Fetch) -> None:
        fetch.batch.is_fetching = False
        if fetch.is_here and fetch.batch.is_done:
            self._batches.end(fetch.batch)
            self._batches.write(fetch.batch)
        elif fetch.is_here:
            self._batches.drop(fetch.batch)


class _Fetch:
    """One fetch through a stand-in for the fetcher, and the dataset's time for the batch.

    The dataset's time ends where the stand-in's collate_fn begins. The fetcher itself stays unchanged for anyone else
    who uses it meanwhile: another thread that reads the same iterator, or code that saves its state.
    """

    stand_in: Any

    def __init__(
        self,
        batches: BatchRecorder,
        rest: int,
        batch: ProducedBatch,
        is_here: bool,
    ) -> None:
        """`rest` is the stage for time outside inner stages."""
        self.batch = batch
        self.is_here = is_here
        self._rest = rest
        self.account = batch.account
        self.first: FirstBatchDigests | None = None
        self.end = batches.guard(self._end)

    def stand_in_for(self, fetcher: Any, collate: Function, index: Any) -> None:
        """Make the stand-in, and begin to time the dataset's code. `index`: what is fetched."""
        self._fetcher: Any = fetcher
        end, is_stream, is_listed = self.end, hasattr(fetcher, "dataset_iter"), fetcher.auto_collation
        count = len(index) if isinstance(index, (list, tuple)) else None if is_stream or is_listed else 1

        def timed_until(data: Any) -> Any:
            end(len(data) if is_stream and is_listed else count)
            return collate(data)

        self.account.enter(self._rest)
        self._given = {**vars(fetcher), "collate_fn": timed_until}
        self.stand_in = object.__new__(type(fetcher))
        vars(self.stand_in).update(self._given)

    def keep_changes(self) -> None:
        """Copy changes of the stand-in's state, such as the end of the data, to the fetcher, and release both.

        The stand-in refers to this object; the cycle would keep the user's iterator until a garbage collection.
        """
        fetcher, given, now = self._fetcher, self._given, vars(self.stand_in)
        self._fetcher = self.stand_in = None
        self._given = {}
        for name, value in now.items():
            if value is not given.get(name, self):
                setattr(fetcher, name, value)

    def _end(self, samples: int | None) -> None:
        """Stop timing the dataset, which gave `samples` samples; None if the number is unknown."""
        self.account.leave()
        if samples:
            self.account.totals[self._rest][0] += samples - 1
            self.batch.samples, self.batch.together = samples, samples - 1
