"""Record of the batches that this process produces, with the files opened and the requests to stores meanwhile."""

from __future__ import annotations

import os
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Callable
from urllib.parse import urlsplit

from .evidence_file import LONGEST_HELD_NS, MOST_HELD, EvidenceFile, Record
from .patches import Fault, HookGuard
from .settings import CoreUse, SessionClock, core_use
from .stack_sampler import CodeLines, StackSampler
from .stages import Account, CallTimer, Totals

_FIRST_PAUSE_NS = 1_000_000_000
_LONGEST_PAUSE_NS = 64_000_000_000
LOST = "lost"
"""Kind of the stack record with the error of a batch that could not be sent."""


@dataclass(eq=False)
class ProducedBatch:
    """One batch under production by one thread. Times are from time.monotonic_ns()."""

    epoch: int
    index: int
    account: Account
    thread: int = field(default_factory=threading.get_ident)
    start: int = field(default_factory=lambda: time.monotonic_ns())
    end: int = 0
    samples: int | None = None
    is_fetching: bool = False
    is_done: bool = False
    totals: Totals = field(default_factory=dict)
    use_before: CoreUse | None = None
    use: tuple[int, int | None] | None = None
    """CPU time and scheduling delay of the batch, in microseconds."""


class BatchRecorder:
    """Recorder of batches, one per thread at a time, which an index in a worker begins, or else the fetch."""

    def __init__(self, timer: CallTimer, evidence: EvidenceFile, clock: SessionClock, fault: Fault) -> None:
        self._stages = timer.stages
        self._evidence = evidence
        self._clock = clock
        self._fault = fault
        self.guard = HookGuard(fault, "making of batches")
        """Guard for every hook that feeds this recorder."""
        self._fetch = timer.stage("other", "fetch")
        self.lines = CodeLines(evidence.name)
        self.opened = OpenedFiles(lambda error: fault("opened files", error))
        self.remote = RemoteReadCounts(evidence.name)
        self._begin_anew()

    def _begin_anew(self) -> None:
        """Reset to the state of a process that has produced nothing yet."""
        self.sampler = StackSampler(self.lines.add, self._hung, lambda error: self._fault("lines", error))
        self.open: dict[Account, ProducedBatch] = {}
        self._pause = _FIRST_PAUSE_NS
        self._due: int | None = None
        self._is_closed = False
        self._ended = 0
        """Batches since the last record of remote reads."""
        self._held: list[Record] = []
        """Records of batches produced in the training thread, not written yet."""
        self._written_at = 0
        self._lately_ns = 0

    def begin(self, epoch: int, index: int) -> ProducedBatch:
        account = self._stages.open()
        batch = self.open[account] = ProducedBatch(epoch, index, account)
        self.sampler.begin(batch)
        batch.use_before = core_use(self._lately_ns)
        account.enter(self._fetch)
        return batch

    def current(self) -> ProducedBatch | None:
        account = self._stages.current()
        return None if account is None else self.open.get(account)

    def end(self, batch: ProducedBatch) -> None:
        """Finish a batch that is fetched and collated."""
        batch.account.leave()
        self.open.pop(batch.account, None)
        batch.totals = self._stages.close()
        batch.end = time.monotonic_ns()
        self._lately_ns = batch.end - batch.start
        self._ended += 1
        if batch.use_before is not None:
            batch.use = core_use(self._lately_ns).us_since(batch.use_before)
        self.sampler.end(batch, batch.end - batch.start)

    def drop(self, batch: ProducedBatch) -> None:
        """Drop a batch that will not finish because of an exception or the end of the data."""
        self.open.pop(batch.account, None)
        self._stages.close()
        self.sampler.end(batch, time.monotonic_ns() - batch.start)

    def write(self, batch: ProducedBatch, sent: int | None = None, serialise: int | None = None) -> None:
        """Write a batch and any other records that are due.

        `sent` is from time.monotonic_ns(), `serialise` in ns. Both are None for a batch produced in the training
        thread, whose record may be held back for a while.
        """
        made = [self._record(batch, sent, serialise)]
        if sent is None:
            self._held += made
            made = []
        if self._due is None:
            self._due = batch.end + self._pause
        if batch.end >= self._due or self._is_closed:
            self._pause = min(2 * self._pause, _LONGEST_PAUSE_NS)
            self._due = batch.end + self._pause
            self._write_held(*made, *self._other_records())
        elif made or len(self._held) >= MOST_HELD or batch.end - self._written_at >= LONGEST_HELD_NS:
            self._write_held(*made)

    def _write_held(self, *others: Record) -> None:
        held, self._held = self._held, []
        self._written_at = time.monotonic_ns()
        if held or others:
            self._evidence.write(*held, *others)

    def flush(self) -> None:
        """Write everything held back, at the end of a pass or of the process."""
        self._write_held(*self._other_records())

    def close(self) -> None:
        """Stop the sampler and flush before the process ends. Batches still to be sent may be written later."""
        self._is_closed = True
        self.sampler.stop()
        self.flush()

    def forking(self) -> None:
        """Stop the sampler, so that none of the probe's threads exists across the fork."""
        self.sampler.stop()

    def forked(self) -> None:
        self.lines.take()
        self.opened.forked()
        self.remote.forked()
        self._begin_anew()

    def _record(self, batch: ProducedBatch, sent: int | None, serialise: int | None) -> Record:
        us = self._clock.us
        start, end = us(batch.start), us(batch.end)
        stages = [[stage, calls, wall // 1000, cpu // 1000] for stage, (calls, wall, cpu) in batch.totals.items()]
        difference = end - start - sum(row[2] for row in stages)
        for row in stages:
            if row[0] == self._fetch:  # assign the rounding error to fetch, so that the wall times sum to the whole
                row[2] = max(row[2] + difference, 0)
        sent_us = None if sent is None else us(sent)
        serialise_us = None if serialise is None else serialise // 1000
        record = ("batch", batch.epoch, batch.index, start, end, sent_us, serialise_us, batch.samples, stages)
        return record if batch.use is None else (*record, *batch.use)

    def _other_records(self) -> list[Record]:
        now = self._clock.now_us()
        records: list[Record] = []
        lines = self.lines.take()
        if lines:
            records.append(("lines", now, lines))
        remote = self.remote.record(now, self._ended)
        if remote is not None:
            records.append(remote)
            self._ended = 0
        return records

    def lost(self, error: Exception) -> None:
        """Write that a batch cannot be sent: the loader prints the error, and its `next()` waits for the batch."""
        self._write_held(("stack", self._clock.now_us(), LOST, f"{type(error).__name__}: {error}"))

    def _hung(self, batch: ProducedBatch, taken_ns: int, stack: str) -> None:
        where = f"batch {batch.index} of epoch {batch.epoch}"
        text = f"{where} has been in the making for {taken_ns / 1e9:.0f} s:\n{stack}"
        self._write_held(("stack", self._clock.now_us(), "hung", text))


MOST_NOTED = 256
"""Maximum number of paths noted for one batch."""
_NO_FILES = ("/proc/", "/sys/")
"""Folders of files that the kernel generates."""


class OpenedFiles:
    """Paths of the file opens that hooks report. `add` precedes the user's own call, so it never raises."""

    def __init__(self, failed: Callable[[Exception], None]) -> None:
        self._failed = failed
        self.forked()

    def forked(self) -> None:
        """Reset in the child of a fork, which has opened nothing yet."""
        self.noted: list[str] | None = None
        """Absolute paths since a caller set it to a list, one for each open; None while nobody asks."""

    def add(self, file: Any) -> None:
        """Note a path (text, bytes or a path object) about to be read. A relative path keeps its first meaning."""
        if self.noted is None or len(self.noted) >= MOST_NOTED:
            return
        try:
            path = os.fsdecode(file) if isinstance(file, (str, bytes, os.PathLike)) else ""
            if path and not path.startswith(_NO_FILES):
                self.noted.append(os.path.abspath(path))
        except Exception as error:
            self.noted = None
            self._failed(error)


MOST_STORES = 16
"""Stores counted separately; all others are merged."""
OTHERS = "other stores"
NAMED: ContextVar[str | None] = ContextVar("headrace_store", default=None)
"""Store that the current library call names; requests below it go to an endpoint that says less."""


class RemoteReadCounts:
    """Counter of requests in all threads of a process. Hooks call it next to script calls, so it never raises."""

    def __init__(self, name: Callable[[str], int]) -> None:
        """`name` returns a text's number in the evidence."""
        self._name = name
        self.forked()

    def forked(self) -> None:
        """Reset in the child of a fork, where a thread that held the lock does not exist."""
        self._lock = threading.Lock()
        self._stores: dict[str, list[int]] = {}
        """Requests since the last record, failed ones, bytes, and microseconds until answers began, by store."""

    def answered(self, place: str, begun_ns: int, size: int, failed: bool = False) -> None:
        """Count a request to `place` sent at `begun_ns`, whose answer of `size` bytes begins now."""
        now = time.monotonic_ns()
        with self._lock:
            counts = self._counts(place)
            for column, more in enumerate((1, failed, size, max((now - begun_ns) // 1000, 1))):
                counts[column] += more

    def more(self, place: str, size: int) -> None:
        with self._lock:
            self._counts(place)[2] += size

    def record(self, now_us: int, batches: int) -> Record | None:
        """Return the `remote` record since the last one, over `batches` batches; None if there never was a request."""
        rows = []
        with self._lock:
            for place, counts in self._stores.items():
                if any(counts):
                    rows.append([self._name(place), *counts])
                    counts[:] = [0] * len(counts)
        return ("remote", now_us, batches, rows) if rows or (batches and self._stores) else None

    def _counts(self, place: str) -> list[int]:
        is_apart = place in self._stores or len(self._stores) < MOST_STORES
        return self._stores.setdefault(place if is_apart else OTHERS, [0, 0, 0, 0])


def place_of(url: Any) -> str:
    """Return the store that a URL names, such as `s3://bucket` or `https://host`, without port or user."""
    named = NAMED.get()
    if named is not None:
        return named
    try:
        parts = urlsplit(str(url))
        host = parts.hostname or ""
    except ValueError:  # not a URL
        return OTHERS
    if "@" in parts.path or not host:  # a user name or password with a slash in it looks like a host
        return OTHERS
    return f"{parts.scheme or 'http'}://{host}"
