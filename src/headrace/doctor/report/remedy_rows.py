"""What is said of each remedy, in words: for every report alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.doctor.causes.remedy import Edit, Outcome, Prescription, Remedy
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.report.escaping import ABSENT, duration
from headrace.doctor.report.remedy_text import (
    helping,
    idle,
    interval,
    is_refused,
    outcome_of,
    predicted,
    proved,
    samples,
    times,
    title,
    together,
)


@dataclass(frozen=True)
class RemedyRow:
    """A remedy that helps, or several at once. Texts are empty where there is nothing to say."""

    title: str
    prediction: Prediction | None
    outcome: Outcome | None
    why: str = ""
    confidence: str = ""
    costs: str = ""
    hint: str = ""
    edit: Edit | None = None
    without: str = ""
    """Of several at once: which of those that would help are not among them, and why not."""

    @property
    def is_refused(self) -> bool:
        """Whether trying it spoke against it."""
        return is_refused(self.outcome)

    @property
    def predicted(self) -> str:
        return "" if self.prediction is None else predicted(self.prediction)

    @property
    def step(self) -> str:
        """The step predicted."""
        return ABSENT if self.prediction is None else duration(self.prediction.step_us)

    @property
    def interval(self) -> str:
        return "" if self.prediction is None else interval(self.prediction.low_us, self.prediction.high_us)

    @property
    def speedup(self) -> str:
        return "" if self.prediction is None else times(self.prediction.speedup)

    @property
    def proved(self) -> str:
        """What came of trying it."""
        return "" if self.outcome is None else proved(self.outcome)

    @property
    def samples(self) -> str:
        """What trying it did to them."""
        return "" if self.outcome is None else samples(self.outcome)

    @property
    def newest(self) -> tuple[float | None, float | None]:
        """The step and how many times as fast it is: as proved, where it was measured, else as predicted."""
        if self.outcome is not None and self.outcome.step_us is not None:
            return self.outcome.step_us, self.outcome.speedup
        return (None, None) if self.prediction is None else (self.prediction.step_us, self.prediction.speedup)


@dataclass(frozen=True)
class RemedyRows:
    helps: list[RemedyRow]
    """The most gain first."""
    numbers: list[int]
    """Which of them go together, counted from 1: those that were proved together, if any were."""
    together: RemedyRow
    """All that go together; nothing is predicted of one alone."""
    idle: list[tuple[str, str]]
    """What would not help, and why not."""


def remedy_rows(prescription: Prescription) -> RemedyRows:
    helps, proved = helping(prescription), together(prescription)
    codes = prescription.together if proved is None else proved.remedies
    best = prescription.best if proved is None else proved.predicted
    return RemedyRows(
        helps=[*(_row(prescription, remedy) for remedy in helps), *_tried_in_vain(prescription)],
        numbers=[place for place, remedy in enumerate(helps, start=1) if remedy.code in codes],
        together=RemedyRow("Together", best if len(helps) > 1 else None, proved, without=_without(prescription)),
        idle=[(title(remedy), remedy.why) for remedy in idle(prescription)],
    )


def _tried_in_vain(prescription: Prescription) -> Iterator[RemedyRow]:
    """List what was tried by itself, and is not predicted to help now: what came of it is not lost."""
    titles = {one.code: title(one) for one in prescription.remedies}
    known = {one.code for one in helping(prescription)}
    for code in dict.fromkeys(one.remedies[0] for one in prescription.outcomes if len(one.remedies) == 1):
        if code not in known:
            yield RemedyRow(titles.get(code, code), None, outcome_of(prescription, [code]))


def _without(prescription: Prescription) -> str:
    """Say that what proofs spoke against is neither counted nor written."""
    titles = [title(one) for one in helping(prescription) if one.code in prescription.left_out]
    return f"without what its proof spoke against ({'; '.join(titles)})" if titles else ""


def _row(prescription: Prescription, remedy: Remedy) -> RemedyRow:
    return RemedyRow(
        title=title(remedy),
        prediction=remedy.prediction,
        outcome=outcome_of(prescription, [remedy.code]),
        why=remedy.why,
        confidence=remedy.confidence,
        costs=", ".join(remedy.costs),
        hint=remedy.hint,
        edit=remedy.edit,
    )
