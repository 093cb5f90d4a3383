"""From a session and its diagnosis to what to do."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..analyse.diagnosis import Diagnosis
from ..analyse.join import Join
from ..analyse.view import View, main_view
from ..predict.prediction import Prediction
from ..session.model import Session
from .case import Case, case_of
from .model import Floors, Outcome, Prescription, Remedy
from .outcomes import outcomes
from .proposal import Proposal
from .sources import Sources, no_files
from .stop import stop
from .table import FAMILIES
from .together import patch, predicted_together, together


def prescribe(session: Session, diagnosis: Diagnosis, sources: Sources | None = None) -> Prescription:
    """Pure, but for reading the user's files through `sources`; without, every change is a hint."""
    main = main_view([View.of(session, trainer, Join(session)) for trainer in session.trainers])
    floors: Floors | None = None
    case = case_of(session, diagnosis, sources or no_files())
    proposals = _proposals(case)
    chosen = together(proposals)
    return Prescription(
        floors=floors,
        why_no_windows="",
        stop=stop(diagnosis, main, floors),
        remedies=[one.remedy for one in sorted(proposals, key=_order)],
        best=None if case is None else predicted_together(case, chosen),
        together=[one.remedy.code for one in chosen],
        patch="" if case is None else patch(case, [one for one in proposals if one.remedy.helps]),
        outcomes=_outcomes(session, diagnosis, case, proposals),
    )


def predicted_of(session: Session, diagnosis: Diagnosis, codes: Collection[str]) -> Prediction | None:
    """Of the remedies with these codes together; None where one of them does not help, or cannot be predicted."""
    case = case_of(session, diagnosis, no_files())
    proposals = [one for one in _proposals(case) if one.remedy.code in codes and one.change is not None]
    is_whole = {one.remedy.code for one in proposals if one.remedy.helps} == set(codes)
    return predicted_together(case, proposals) if case is not None and is_whole else None


def _outcomes(
    session: Session, diagnosis: Diagnosis, case: Case | None, proposals: Sequence[Proposal]
) -> list[Outcome]:
    """What proofs came to, beside what is predicted of the same remedies."""
    alone = {one.remedy.code: one.remedy.prediction for one in proposals}

    def predict(codes: list[str]) -> Prediction | None:
        return alone.get(codes[0]) if len(codes) == 1 else predicted_of(session, diagnosis, codes)

    return [] if case is None else outcomes(session.proofs, predict, case.step_us)


def _proposals(case: Case | None) -> list[Proposal]:
    return [] if case is None else [proposal for family in FAMILIES for proposal in family(case)]


def _order(proposal: Proposal) -> tuple[bool, float]:
    """Those that help first, the shortest step first; what cannot be predicted after what can."""
    remedy: Remedy = proposal.remedy
    return not remedy.helps, float("inf") if remedy.prediction is None else remedy.prediction.step_us
