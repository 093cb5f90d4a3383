"""State of the training thread's observation: what the parts that observe it share. It gives no orders."""

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
    """What is known of a process's training."""

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
        """Whether steps may pass unobserved. Not where hooks would not see when to go on."""
        self.said: set[str] = set()
        """Codes of the notes that were written."""
        self.begin()

    def begin(self) -> None:
        """Begin with the first step, as another thread or the child of a fork does."""
        self.steps = StepTimeline()
        self.elsewhere.clear()
        self.steps_seen = 0

    def say(self, code: str, text: str) -> None:
        """Note something for the report, each code once."""
        if code not in self.said:
            self.said.add(code)
            self._note(code, text)

    def forked(self) -> None:
        """Begin anew in the child of a fork, which has trained nothing yet. CUDA cannot be used in it."""
        self.marks = None
        self.ranges = None
        self.costs.conversions = self.costs.measured_ns = 0
        self.work.forked()
        self.said.clear()
        self.thread.begin(get_ident())
        self.counter.reset()
