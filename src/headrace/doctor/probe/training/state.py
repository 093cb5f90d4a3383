"""Shared state of the observation of the training thread: its thread, its ranks, and its parts."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import timedelta
from threading import get_ident, main_thread
from typing import Any, Callable

from ..device_marks import DeviceMarks
from ..evidence_file import EvidenceFile
from ..overhead import NOBODY, TrainingCost
from ..patches import Fault
from ..settings import ProbeSettings, SessionClock
from .loop_work import LoopWork
from .received_batches import HandedOverBatches, PassCounter
from .step_limit import StepLimit
from .steps import StepTimeline

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
        self.costs.conversions = self.costs.measured_ns = 0
        self.work.forked()
        self.said.clear()
        self.thread.begin(get_ident())
        self.counter.reset()


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


DEADLINE_S = 30.0
"""Time after which a rank counts as being elsewhere in its program, since ranks train in step."""


class RankAgreement:
    """Joint decisions of all ranks through the key-value store of their process group.

    No existing key of the store is touched.
    """

    def __init__(self, store: Any, rank: int, count: int) -> None:
        self._store = store
        self._rank = rank
        self.count = count

    def agree(self, question: str, vote: Any, merge: Callable[[list[Any]], Any], deadline_s: float = DEADLINE_S) -> Any:
        """Return `merge(votes)` of all ranks, the same on each of them.

        Return None on every rank if not all have voted by the deadline. Votes and the result are JSON values.
        """
        if self.count == 1:
            return merge([vote])
        key = f"headrace/{question}/"
        self._store.set(f"{key}{self._rank}", json.dumps(vote))
        proposal = json.dumps(None)
        if self._store.add(key + "votes", 1) == self.count:
            proposal = json.dumps(merge([json.loads(self._store.get(f"{key}{rank}")) for rank in range(self.count)]))
        else:
            with suppress(Exception):  # each kind of store raises its own error on a timeout
                self._store.wait([key + "decision"], timedelta(seconds=deadline_s))
        # The first proposal counts, from whichever rank.
        return json.loads(self._store.compare_set(key + "decision", "", proposal))


class RankGroup:
    """The ranks of this training, as joined by torch.distributed."""

    def __init__(self) -> None:
        self.distributed: Any = None
        """torch.distributed, once imported."""

    def world_size(self) -> int:
        is_joined = self.distributed is not None and self.distributed.is_initialized()
        return int(self.distributed.get_world_size()) if is_joined else 1

    def ranks(self) -> RankAgreement:
        """Return the object for joint decisions. Without other ranks, this process decides alone."""
        count = self.world_size()
        if count == 1:
            return RankAgreement(None, 0, 1)
        store = self.distributed.distributed_c10d._get_default_store()
        return RankAgreement(store, self.distributed.get_rank(), count)
