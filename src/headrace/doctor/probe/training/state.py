"""State of the observation of the training thread: its thread, its ranks, its passes, and the batches received."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from threading import get_ident, main_thread
from typing import Any, Callable

from ..evidence_file import EvidenceFile
from ..patches import Fault
from ..settings import ProbeSettings, SessionClock
from ..stages import NOBODY, TrainingCost
from .device_marks import DeviceMarks
from .loop_watch import DEADLINE_S, LoopWork, StepLimit
from .steps import FetchedBatch, StepTimeline

ATTRIBUTE = "_headrace_pass"
"""Attribute of a DataLoader iterator: its `ObservedPass`."""
MOST_KNOWN = 16
MOST_OTHERS = 3
"""Maximum number of further loaders that are inspected."""
MOST_READ = 4096
"""Maximum number of batches in a reader; a DataLoader itself stores as many as its workers may prefetch."""
MOST_ELSEWHERE = 1024
"""Maximum number of stored batches of other threads."""
MOST_EXPECTED = 128
"""Maximum number of stored batches that the training thread may still take over."""
OBSERVED_STEPS = 1000
"""Steps that `--observe` measures after the warm-up. Where all batches are noted, observation has no end."""


class TrainingState:
    def __init__(
        self,
        settings: ProbeSettings,
        evidence: EvidenceFile,
        clock: SessionClock,
        note: Callable[[str, str], None],
        fault: Fault,
    ) -> None:
        self.settings, self.evidence, self.clock, self.fault = settings, evidence, clock, fault
        self._note = note
        self.thread = TrainingThread(main_thread().ident or get_ident())
        self.counter = PassCounter()
        self.costs, self.elsewhere, self.group = TrainingCost(), HandedOverBatches(), RankGroup()
        self.work = LoopWork(evidence.name, lambda error: fault("lines of the loop", error))
        observed = None if settings.orders else OBSERVED_STEPS
        self.limit = StepLimit(settings.warmup, observed if settings.observe else settings.steps, settings.enough)
        self.marks: DeviceMarks | None = None
        self.said: set[str] = set()
        """Codes of the notes written so far."""
        self.begin()

    def begin(self) -> None:
        """Start at the first step, for another thread or the child of a fork."""
        self.steps = StepTimeline()
        self.elsewhere.clear()
        self.steps_seen = 0

    def say(self, code: str, text: str) -> None:
        """Write a note for the report, once per code."""
        if code not in self.said:
            self.said.add(code)
            self._note(code, text)

    def forked(self) -> None:
        """Reset in the child of a fork, which has trained nothing yet, and cannot use CUDA."""
        self.marks = None
        self.costs.measured_ns = 0
        self.work.forked()
        self.said.clear()
        self.thread.begin(get_ident())
        vars(self.counter).update(vars(PassCounter()))


class TrainingThread:
    """The training thread: the main thread, or the first other thread in which an optimizer steps."""

    __slots__ = ("is_fetching", "observed")

    def __init__(self, thread: int) -> None:
        self.begin(thread)

    def begin(self, thread: int) -> None:
        self.observed = thread
        """Id of the thread, or NOBODY after the end of observation, so that hooks do nothing."""
        self.is_fetching = False
        """True inside a `next()` or `iter()` of a DataLoader."""

    @property
    def is_on(self) -> bool:
        """True while a thread is followed."""
        return self.observed != NOBODY

    def is_its_thread(self) -> bool:
        """Return True in the training thread."""
        return get_ident() == self.observed

    def is_here(self) -> bool:
        """Return True in the training thread outside of waits for a batch, where its work counts."""
        return get_ident() == self.observed and not self.is_fetching


class RankGroup:
    """The ranks of this training, as joined by torch.distributed."""

    def __init__(self) -> None:
        self.distributed: Any = None
        """torch.distributed, once imported."""
        self._rank: int | None = None

    def world_size(self) -> int:
        is_joined = self.distributed is not None and self.distributed.is_initialized()
        return int(self.distributed.get_world_size()) if is_joined else 1

    def joined(self) -> int | None:
        """Return this process's rank once it has joined others, at the first call since then; otherwise None."""
        rank = self.distributed.get_rank() if self.world_size() > 1 else None
        is_new, self._rank = rank != self._rank, rank
        return rank if is_new else None

    def agree(self, question: str, vote: Any, merge: Callable[[list[Any]], Any]) -> Any:
        """Return `merge(votes)` of all ranks, the same on each of them; without other ranks, this process decides.

        Return None on every rank if not all have voted by the deadline. Votes and the result are JSON values, in the
        key-value store of the process group. No existing key of the store is touched.
        """
        count = self.world_size()
        if count == 1:
            return merge([vote])
        store, key = self.distributed.distributed_c10d._get_default_store(), f"headrace/{question}/"
        store.set(f"{key}{self.distributed.get_rank()}", json.dumps(vote))
        proposal = json.dumps(None)
        if store.add(key + "votes", 1) == count:
            proposal = json.dumps(merge([json.loads(store.get(f"{key}{rank}")) for rank in range(count)]))
        else:
            with suppress(Exception):  # each kind of store raises its own error on a timeout
                store.wait([key + "decision"], timedelta(seconds=DEADLINE_S))
        # The first proposal counts, from whichever rank.
        return json.loads(store.compare_set(key + "decision", "", proposal))


class QueueReader:
    """Times of reads from the worker queue of one iterator, until each batch is delivered.

    The times are end, duration and CPU time of unpickling, and start and duration of pinning. The pinning thread is not
    the thread that requests batches, and knows a batch's index only after reading it.
    """

    __slots__ = ("index", "pinned", "pinning", "unpickled")

    def __init__(self) -> None:
        self.index: int | None = None
        """Index of the last batch read."""
        self.unpickled: dict[int, tuple[int, int, int]] = {}
        self.pinned: dict[int, tuple[int, int]] = {}
        self.pinning = False

    def read(self, value: Any, end: int, duration: int, cpu: int) -> None:
        """Record the unpickling of a value if it is a batch: a tuple that begins with its index."""
        if type(value) is tuple and len(value) > 1 and type(value[0]) is int:
            self.index = value[0]
            _put(self.unpickled, value[0], (end, duration, cpu))

    def pin(self, start: int, duration: int) -> None:
        """Record that the last batch read was pinned. Without workers nothing was read, and the index is 0."""
        _put(self.pinned, self.index or 0, (start, duration))


def _put(held: dict[int, Any], index: int, times: tuple[int, ...]) -> None:
    """Store times, in place of the oldest if there are too many, from batches that nobody requests."""
    if len(held) >= MOST_READ:
        held.pop(next(iter(held)), None)
    held[index] = times


@dataclass(eq=False)
class ObservedPass:
    """One iteration over a DataLoader, from its `iter()` on."""

    training: object
    """Observer that follows the pass; an earlier observer may have existed in the process."""
    number: int
    epoch: int
    """Number of earlier passes of the same workers."""
    has_workers: bool
    """True if batches come from worker processes."""
    loader: int
    owner: Callable[[], Any]
    """Function that returns the DataLoader, or None if it no longer exists."""
    makers: int
    """Number of processes or threads that prefetch batches."""
    index: int = -1
    """Index of the last batch taken from the queue, or produced by the process."""
    given: int = 0
    """Number of batches requested so far."""
    in_order: bool = True
    """True if batches arrive in index order, whichever worker is ready first."""
    reader: QueueReader = field(default_factory=QueueReader)
    """Reader of the thread that requests batches."""


class HandedOverBatches:
    """Batches that other threads received. Any thread adds, the training thread removes: each in one operation."""

    def __init__(self) -> None:
        self._batches: deque[FetchedBatch] = deque(maxlen=MOST_ELSEWHERE)
        self._first: list[Callable[[], None]] = []
        self.threads: set[int] = set()
        """Ids of the threads that received a batch."""
        self.clear()

    def clear(self) -> None:
        self._batches.clear()
        self.threads.clear()
        self._most_ahead = 0
        self._newest: FetchedBatch | None = None
        self.is_handed_over = False
        """True if the batches' way to the training thread is observed."""

    def at_first(self, call: Callable[[], None]) -> None:
        """Run `call` once another thread has received a batch; immediately if one has."""
        if self.threads:
            call()
        else:
            self._first.append(call)

    def add(self, batch: FetchedBatch) -> None:
        self._batches.append(batch)
        self._most_ahead = max(self._most_ahead, len(self._batches))
        self._newest = batch
        self.threads.add(threading.get_ident())
        while self._first:
            self._first.pop()()

    def is_far_ahead(self) -> bool:
        """Return True if as many batches wait to be taken over as ever did."""
        return len(self._batches) >= self._most_ahead

    def put_on(self) -> FetchedBatch | None:
        """Return the latest batch, which is being passed to the training thread, or None."""
        self.is_handed_over = True
        batch, self._newest = self._newest, None
        return batch

    def oldest(self) -> FetchedBatch | None:
        return self._batches[0] if self._batches else None

    def take(self, batch: FetchedBatch) -> bool:
        """Remove a batch and return True, or return False if the training thread has already taken it over."""
        try:
            self._batches.remove(batch)
        except ValueError:
            return False
        return True

    def left(self, is_over: bool) -> list[FetchedBatch]:
        """Remove and return the batches that will not be taken over, or all of them if `is_over`."""
        held = MOST_EXPECTED if self.is_handed_over and not is_over else 0
        return [self._batches.popleft() for _ in range(len(self._batches) - held)]


@dataclass
class PassCounter:
    """Numbers of loaders and their passes so far."""

    passes: int = 0
    loaders: int = 0
    opening: int | None = None
    """Number of the pass that `iter(loader)` is beginning."""


class LookedLoader:
    """The DataLoader that gave training the most batches. Only rank 0 inspects it."""

    def __init__(self, settings: ProbeSettings, note: Callable[[str, str], None]) -> None:
        self._seconds, self._note = settings.look_s, note
        self.may_look = self._seconds > 0
        self._folder = settings.folder
        self._known: deque[Any] = deque(maxlen=MOST_KNOWN if settings.shortens else 0)
        """The latest loaders, which a run that is checked for faults of its data keeps, and inspects as well."""
        self._counts: Counter[int] = Counter()
        self._owners: dict[int, Callable[[], Any]] = {}

    def made(self, loader: Any) -> None:
        self._known.append(loader)

    def fed_by(self, pass_: ObservedPass) -> None:
        self._counts[pass_.loader] += 1
        self._owners[pass_.loader] = pass_.owner

    def most_used(self) -> Any:
        """Return the loader with the most batches, or None if it no longer exists."""
        return next((self._owners[number]() for number, _ in self._counts.most_common(1)), None)

    def look_at(self, loader: Any) -> None:
        """Inspect a DataLoader. Never raises, whatever its dataset does."""
        if not self._seconds or loader is None or not _is_first_rank():
            return
        if type(loader).__module__.startswith("headrace."):
            return
        from ..look.value_look import LOOK_FILE, look_within  # few processes need it

        path = os.path.join(self._folder, LOOK_FILE)
        why = look_within(loader, path, self._seconds, seeks_odd=bool(self._known.maxlen))
        if why:
            self._note("no-look", f"The dataset's samples could not be looked at: {why}")
        others = {id(one.dataset): one for one in self._known if one.dataset is not loader.dataset}
        for number, one in enumerate(list(others.values())[-MOST_OTHERS:]):
            if why := look_within(one, f"{path}-{number}", self._seconds / 2):
                self._note("no-look", f"Samples of {type(one.dataset).__name__} could not be looked at: {why}")


def _is_first_rank() -> bool:
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return os.environ.get("RANK", "0") == "0"
