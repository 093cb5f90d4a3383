"""What a page is made from, and the one trainer that it is about."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.doctor.analyse.join import Join
from headrace.doctor.analyse.loaders import with_loaders_as_one
from headrace.doctor.causes.remedy import Prescription
from headrace.doctor.measure.diagnosis import Diagnosis, StepBudget
from headrace.doctor.measure.steps import Training, training
from headrace.doctor.report.step import waiting_most
from headrace.doctor.session.model import Maker, Session


@dataclass(frozen=True)
class Report:
    """A session and what was computed from it."""

    session: Session
    diagnosis: Diagnosis
    prescription: Prescription | None
    again: str = ""

    @cached_property
    def budget(self) -> StepBudget | None:
        """Of the rank that waits longest for data."""
        return next(iter(waiting_most(self.diagnosis)), None)

    @cached_property
    def training(self) -> Training | None:
        """Its measured steps."""
        for trainer in self.session.trainers:
            if self.budget is not None and (trainer.pid, trainer.rank) == (self.budget.pid, self.budget.rank):
                measured = training(self.session, with_loaders_as_one(trainer))
                return measured if measured.steps else None
        return None

    @cached_property
    def join(self) -> Join:
        return Join(self.session)

    @cached_property
    def whose(self) -> str:
        """`, rank 3`, where there are several ranks; else empty."""
        several = len({trainer.rank for trainer in self.session.trainers}) > 1
        return f", rank {self.budget.rank}" if several and self.budget is not None else ""

    def makers_of(self, pid: int, host: str) -> list[Maker]:
        """By their number."""
        own = [maker for maker in self.session.makers if maker.trainer == pid and maker.host == host]
        return sorted(own, key=lambda maker: (maker.worker or 0, maker.started or 0))
