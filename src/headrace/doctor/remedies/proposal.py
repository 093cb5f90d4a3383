"""A remedy with what its prescription is put together from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.doctor.causes.case import Case, Change
from headrace.doctor.causes.remedy import Remedy
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.quantities import time
from headrace.doctor.remedies.factor import Factor, over

HIGH, MEDIUM, LOW = "high", "medium", "low"
"""Confidence: only what was recorded, simulated anew; something timed beside the run, too; an assumption."""


@dataclass(frozen=True)
class Proposal:
    remedy: Remedy
    change: Change | None = None
    """To predict it together with others."""
    wanted: Wanted | None = None
    """To change the user's files for it together with others."""


def tried(
    case: Case,
    prediction: Prediction | None,
    *,
    code: str,
    title: str,
    why: str,
    confidence: str,
    change: Change,
    costs: list[str] | None = None,
    wanted: Wanted | None = None,
    hint: str = "",
    changes: dict[str, Any] | None = None,
) -> Proposal:
    """Helps where the prediction says so; else it says what was predicted. One that cannot be predicted is not said to
    help."""
    if prediction is None:
        return would_not(code, title, f"{why} What it would gain cannot be computed: no batch's making was recorded.")
    if not case.is_faster(prediction):
        return would_not(code, title, f"{why} {_no_gain(case, prediction)}")
    edit = None if wanted is None else case.edit(wanted)
    options = None if wanted is None else case.run_with(wanted)
    remedy = Remedy(
        code=code,
        title=title,
        helps=True,
        why=why,
        prediction=prediction,
        confidence=confidence,
        costs=costs or [],
        edit=edit,
        hint=hint if options is None else f"run it with {options}",
        changes=changes,
    )
    return Proposal(remedy, change, wanted)


def would_not(code: str, title: str, why: str) -> Proposal:
    return Proposal(Remedy(code, title, helps=False, why=why, prediction=None, confidence=HIGH))


def unpredicted(
    code: str, title: str, why: str, *, costs: list[str] | None = None, hint: str = "", wanted: Wanted | None = None
) -> Proposal:
    """One that is right to do, but whose gain nothing that was recorded tells."""
    remedy = Remedy(code, title, helps=True, why=why, prediction=None, confidence=LOW, costs=costs or [], hint=hint)
    return Proposal(remedy, wanted=wanted)


def with_factor(case: Case, factor: Factor, change: Any) -> Prediction | None:
    """`change` makes a Change of what is left of a stage. The interval spans what the factor may be."""
    return over(*(case.predict(change(left)) for left in (factor.usual, factor.least, factor.most)))


def _no_gain(case: Case, prediction: Prediction) -> str:
    return f"It would give {time(prediction.step_us)} a step, and there are {time(case.step_us)} now: no gain."
