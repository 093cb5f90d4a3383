"""What one run left to simulate: the work of its batches and steps, free of what they waited for."""

from __future__ import annotations

from dataclasses import dataclass

from ..analyse.diagnosis import Diagnosis
from ..session.model import Session
from .setup import Setup


@dataclass(frozen=True)
class Recorded:
    """The rank that waits for data the longest, and the loader that it waits for. Times are microseconds."""

    pid: int
    loader: int
    """Its number in `Trainer.loaders`."""
    setup: Setup
    """As the run was."""
    observed_us: float
    """Mean measured step."""
    batches_a_step: float

    def cores_of_work_at(self, step_us: float) -> float:
        """Cores that its workers, its training thread and what helps them would keep busy at that step time."""
        raise NotImplementedError

    def capacity(self) -> float | None:
        """Cores that are there for it: its share of what affinity and quota allow; None where that is not known."""
        return self.setup.cores

    def floor_us(self) -> float:
        """Mean step that waits for no data: of the replay window where there was one, else of the observed steps
        without their waits."""
        raise NotImplementedError


def recorded(session: Session, diagnosis: Diagnosis) -> Recorded | None:
    """None where there is nothing to simulate: no measured step, no DataLoader that it waited for, or no record of the
    batches' making."""
    raise NotImplementedError
