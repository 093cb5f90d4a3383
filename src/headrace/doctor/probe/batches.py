"""The batches that this process makes: begun, fetched, sent, and written down."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from .cost import Cost
from .evidence import Record
from .slow import SlowSamples
from .stages import Account, Totals

if TYPE_CHECKING:
    from .probe import Probe

_FIRST_PAUSE_NS = 1_000_000_000
_LONGEST_PAUSE_NS = 64_000_000_000


class Batch:
    """One batch in the making, by one thread. Times are time.monotonic_ns()."""

    __slots__ = (
        "account",
        "before",
        "beside",
        "end",
        "epoch",
        "index",
        "is_done",
        "is_fetching",
        "samples",
        "start",
        "thread",
        "totals",
    )

    def __init__(self, epoch: int, index: int, account: Account) -> None:
        self.epoch = epoch
        self.index = index
        self.account = account
        self.thread = threading.get_ident()
        self.start = time.monotonic_ns()
        self.end = 0
        self.samples: int | None = None
        self.is_fetching = False
        self.is_done = False
        self.before: Totals = {}
        self.totals: Totals = {}
        self.beside: Totals = {}


class Batches:
    """What the threads of a process make, each one batch at a time. A batch is begun by the worker loop, when an index
    has arrived, or by the fetch itself where there are no workers."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._fetch = probe.stage("other", "fetch")
        self._rest = probe.stage("getitem", "rest")
        self._begin_anew()

    def begin(self, epoch: int, index: int) -> Batch:
        account = self._probe.stages.open()
        batch = self.open[account] = Batch(epoch, index, account)
        account.enter(self._fetch)
        return batch

    def current(self) -> Batch | None:
        """The batch that this thread makes."""
        account = self._probe.stages.current()
        return None if account is None else self.open.get(account)

    def begin_sample(self, batch: Batch) -> None:
        """The dataset's own code runs from now on: what no inner stage takes is the rest of it."""
        batch.before = batch.account.take()
        batch.account.enter(self._rest)

    def end_sample(self, batch: Batch, key: Any, samples: int | None) -> None:
        """The dataset has given `samples` at once: of several, each is taken to have cost the same. None for something
        of which nobody knows whether it is one sample; 0 where it raised."""
        wall = batch.account.leave()
        totals = batch.account.totals
        batch.account.totals = batch.before
        batch.account.add(totals)
        if samples is not None:
            batch.samples = (batch.samples or 0) + samples
        if samples != 0:
            self.slow.offer(batch.epoch, batch.index, key, wall // (samples or 1), totals)

    def end(self, batch: Batch) -> None:
        """It is fetched and collated."""
        batch.account.leave()
        self.open.pop(batch.account, None)
        batch.totals, batch.beside = self._probe.stages.close()
        batch.end = time.monotonic_ns()

    def drop(self, batch: Batch) -> None:
        """It will never be done: an exception, or the end of the data."""
        self.open.pop(batch.account, None)
        self._probe.stages.close()

    def write(self, batch: Batch, sent: int | None = None, serialise: int | None = None) -> None:
        """Writes it down, with what else is due. `sent` by time.monotonic_ns(), `serialise` in ns."""
        started = time.thread_time_ns()
        evidence = self._probe.evidence
        records = [self._record(batch, sent, serialise)] if batch.index % evidence.stride == 0 else []
        if self._due is None:
            self._due = batch.end + self._pause
        elif batch.end >= self._due:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_NS)
            self._due = batch.end + self._pause
            records += self._other_records()
        evidence.write(*records)
        self.cost.add_hooks(batch.totals)
        self.cost.add_since(started)

    def flush(self) -> None:
        """Writes what has not been due yet. For the end of a worker, of a pass, of the process."""
        self._probe.evidence.write(*self._other_records())

    def forked(self) -> None:
        """In the child of a fork: it has made nothing yet."""
        self._begin_anew()

    def _begin_anew(self) -> None:
        self.open: dict[Account, Batch] = {}
        self.slow = SlowSamples()
        self.cost = Cost()
        self._pause = _FIRST_PAUSE_NS
        self._due: int | None = None

    def _record(self, batch: Batch, sent: int | None, serialise: int | None) -> Record:
        us = self._probe.clock.us
        start, end = us(batch.start), us(batch.end)
        stages = _table(batch.totals)
        _settle(stages, self._fetch, end - start)
        made = ("batch", batch.epoch, batch.index, start, end)
        sent_us = None if sent is None else us(sent)
        serialise_us = None if serialise is None else serialise // 1000
        record = (*made, sent_us, serialise_us, batch.samples, stages)
        return (*record, _table(batch.beside)) if batch.beside else record

    def _other_records(self) -> list[Record]:
        return [*self.slow.records(), ("probe", self._probe.clock.now_us(), self.cost.total_ns // 1000)]


def _table(totals: Totals) -> list[list[int]]:
    return [[stage, calls, wall // 1000, cpu // 1000] for stage, (calls, wall, cpu) in totals.items()]


def _settle(stages: list[list[int]], stage: int, whole: int) -> None:
    """Gives `stage` what rounding took, so that the walls sum to the whole."""
    difference = whole - sum(row[2] for row in stages)
    for row in stages:
        if row[0] == stage:
            row[2] = max(row[2] + difference, 0)
