"""Shared state of the observation of the training thread, without any logic of its own."""

from __future__ import annotations

from threading import get_ident, main_thread
from typing import Callable

from ..device_marks import DeviceMarks, ProfilerRanges
from ..evidence_file import EvidenceFile
from ..overhead import TrainingCost
from ..patches import Fault
from ..settings import ProbeSettings, SessionClock
from .loop_work import LoopWork
from .ranks import RankGroup
from .received_batches import HandedOverBatches, PassCounter
from .step_limit import StepLimit
from .steps import StepTimeline
from .thread import TrainingThread


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
        self.limit = StepLimit(settings.warmup, None if settings.observe else settings.steps, settings.enough)
        self.marks: DeviceMarks | None = None
        self.ranges: ProfilerRanges | None = None
        self.may_pause = settings.observe
        """True if steps may pass unobserved; False if hooks would miss the time to resume."""
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
        self.ranges = None
        self.costs.conversions = self.costs.measured_ns = 0
        self.work.forked()
        self.said.clear()
        self.thread.begin(get_ident())
        self.counter.reset()
