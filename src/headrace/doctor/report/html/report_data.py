"""Data of the HTML report: a session, its diagnosis, and the trainer that the page describes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from headrace.doctor.causes import Prescription
from headrace.doctor.measure import (
    Diagnosis,
    Join,
    LoaderProduction,
    MeasuredTraining,
    StepBudget,
    TimePart,
    training,
    with_loaders_as_one,
)
from headrace.doctor.report.terminal import waiting_most
from headrace.doctor.session.model import Session


@dataclass(frozen=True)
class ReportData:
    """Session with the results computed from it."""

    session: Session
    diagnosis: Diagnosis
    prescription: Prescription | None
    again: str = ""

    @cached_property
    def budget(self) -> StepBudget | None:
        """Step budget of the rank that waits longest for data."""
        return next(iter(waiting_most(self.diagnosis)), None)

    @cached_property
    def training(self) -> MeasuredTraining | None:
        """Measured steps of the rank in `budget`."""
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
        """Text such as `, rank 3` if there are several ranks; otherwise empty."""
        several = len({trainer.rank for trainer in self.session.trainers}) > 1
        return f", rank {self.budget.rank}" if several and self.budget is not None else ""

    @cached_property
    def loaders(self) -> list[LoaderProduction]:
        """Batch production of each loader of the rank in `budget`; of all ranks if no budget is known."""
        pid = None if self.budget is None else self.budget.pid
        return [one for one in self.diagnosis.batch_production if pid in (None, one.trainer)]

    @cached_property
    def wait(self) -> list[TimePart]:
        """Parts of the wait for data."""
        pid = None if self.budget is None else self.budget.pid
        return next((one.parts for one in self.diagnosis.waits if one.pid == pid), [])

    @cached_property
    def causes(self) -> list[TimePart]:
        """Causes of the wait for data."""
        pid = None if self.budget is None else self.budget.pid
        return next((one.parts for one in self.diagnosis.causes if one.pid == pid), [])
