"""Remedies that go together: one prediction, and one change of the user's files."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from headrace.doctor.causes.case import Case
from headrace.doctor.edits.changes import Wanted
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.predict.setup import Setup
from headrace.doctor.remedies.proposal import Proposal

ADDS = 0.01
"""Share of a step that a remedy must gain beside the others, to be worth what it costs."""


MORE_HANDS = ("workers", "prefetch")
"""Remedies that leave the work as it is."""


def together(case: Case, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Of those that help and can be predicted, one after the other, each that still gains beside those before it: what
    injection can prove before what needs the user's hand, less work before more hands, then the most gain first."""
    helping = [one for one in proposals if one.remedy.helps and one.change is not None]
    chosen: list[Proposal] = []
    step_us = case.step_us
    for one in sorted(helping, key=_order):
        prediction = predicted_together(case, [*chosen, one])
        if prediction is not None and prediction.step_us <= (1 - ADDS) * step_us:
            chosen.append(one)
            step_us = prediction.step_us
    return chosen


def _order(proposal: Proposal) -> tuple[bool, bool, float]:
    remedy = proposal.remedy
    step_us = float("inf") if remedy.prediction is None else remedy.prediction.step_us
    return remedy.changes is None, remedy.code in MORE_HANDS, step_us


def predicted_together(case: Case, proposals: Collection[Proposal]) -> Prediction | None:
    """None where there is nothing to predict."""
    changes = [one.change for one in proposals if one.change is not None]
    if not changes:
        return None

    def all_of_them(setup: Setup) -> Setup:
        for change in changes:
            setup = change(setup)
        return setup

    return case.predict(all_of_them)


def patch(case: Case, proposals: Sequence[Proposal], root: str) -> str:
    """One diff, its files named from `root` on, of what can be changed with certainty: each remedy's change beside the
    others'."""
    wanted = Wanted()
    for one in proposals:
        if one.remedy.edit is not None and one.wanted is not None:
            wanted = wanted.with_(one.wanted)
    return "".join(file.diff(root) for file in case.changed(wanted) or [])
