"""One trainer, measured from every side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from headrace.doctor.analyse.budget import step_budget
from headrace.doctor.analyse.causes import causes
from headrace.doctor.analyse.join import Join
from headrace.doctor.analyse.loaders import with_loaders_as_one
from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.measure.diagnosis import Causes, Making, StepBudget, WaitSplit
from headrace.doctor.measure.own_loaders import shares_of_feeds
from headrace.doctor.measure.production import makings
from headrace.doctor.measure.steps import Training, training
from headrace.doctor.measure.waits import Wait, wait_split, waits
from headrace.doctor.session.model import Loader, Session, Trainer


@dataclass(frozen=True)
class View:
    """Computed once, and shared by the verdict and the findings."""

    training: Training
    budget: StepBudget | None
    waits: list[Wait]
    split: WaitSplit | None
    causes: Causes
    makings: list[Making]
    only: bool
    """Whether no other rank trains beside it."""

    @classmethod
    def of(cls, session: Session, trainer: Trainer, join: Join) -> View:
        measured = training(session, with_loaders_as_one(trainer))
        found = waits(measured, join)
        return cls(
            training=measured,
            budget=step_budget(measured),
            waits=found,
            split=wait_split(measured, found),
            causes=causes(trainer.pid, found, len(measured.steps), shares_of_feeds(measured)),
            makings=makings(measured, join),
            only=len({one.rank for one in session.trainers}) < 2,
        )

    @property
    def trainer(self) -> Trainer:
        return self.training.trainer

    @property
    def has_gpu(self) -> bool:
        """Whether it was measured what the GPU waited for."""
        return self.budget is not None and self.budget.device is not None

    @cached_property
    def wait_share(self) -> float | None:
        """Of each step, as the GPU sees it where that was measured; None where there was no loader to wait for."""
        if self.budget is None or not self.training.trainer.gets.start:
            return None
        return self.share(WAIT)

    def share(self, part: str) -> float:
        """Of each step, as the GPU sees it where that was measured; 0 where there is no such part, or no step."""
        parts = [] if self.budget is None else self.budget.device or self.budget.parts
        return next((one.share for one in parts if one.name == part), 0.0)

    def loader(self, number: int) -> Loader | None:
        return next((loader for loader in self.trainer.loaders if loader.number == number), None)


def main_view(views: Sequence[View]) -> View | None:
    """The one that the verdict is about: of those that train, the one that waited longest for data."""
    return max(views, key=_weight, default=None)


def _weight(view: View) -> tuple[bool, float]:
    wait = (view.wait_share or 0.0) * view.training.total_us
    return view.training.unit == "step" and bool(view.training.steps), wait
