"""From a session and its diagnosis to what to do."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from statistics import fmean

from headrace.doctor.analyse.join import Join
from headrace.doctor.causes.case import WORTH, Case, case_of
from headrace.doctor.causes.remedy import Outcome, Prescription
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.host import host_of
from headrace.doctor.measure.view import View, main_view
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.remedies.floors import floors, why_no_floors
from headrace.doctor.remedies.outcomes import left_out, outcomes
from headrace.doctor.remedies.proposal import Proposal
from headrace.doctor.remedies.sources import Sources, no_files
from headrace.doctor.remedies.stop import stop
from headrace.doctor.remedies.table import FAMILIES
from headrace.doctor.remedies.together import patch, predicted_together, together
from headrace.doctor.session.model import Session


def prescribe(session: Session, diagnosis: Diagnosis, sources: Sources | None = None) -> Prescription:
    """Pure, but for reading the user's files through `sources`; without, every change is a hint."""
    join = Join(session)
    view = main_view([View.of(session, trainer, join) for trainer in session.trainers])
    if view is None:
        return Prescription(None, why_no_floors(session, None), "")
    bounds = floors(session, view)
    case = case_of(session, diagnosis, view, sources or no_files())
    proposals = _proposals(case)
    control = session.control
    again_us = None if control is None or not control.steps else fmean(control.steps)
    without = [us for us in (_observed_us(case, view), again_us) if us is not None]
    others_cores = _others_cores(session, view) if control is None or again_us is None else control.others_cores
    told = outcomes(session.proofs, lambda codes: _predicted_of(case, proposals, codes), min(without), others_cores)
    chosen, out = ([], []) if case is None else _chosen(case, proposals, told, max(without))
    root = _root(case, chosen)
    return Prescription(
        floors=bounds,
        why_no_windows=why_no_floors(session, view) if bounds is None else "",
        stop=stop(diagnosis, view, bounds),
        remedies=[one.remedy for one in sorted(proposals, key=_order)],
        best=_predicted(case, chosen),
        together=[one.remedy.code for one in chosen],
        left_out=out,
        patch="" if case is None else patch(case, chosen, root),
        patch_root=root,
        outcomes=told,
        again_us=again_us,
    )


def _chosen(
    case: Case, proposals: Sequence[Proposal], told: Sequence[Outcome], longest_us: float
) -> tuple[list[Proposal], list[str]]:
    """Those that go together, and the codes of what proofs spoke against: that leaves room for others, which they may
    have spoken against, too."""
    wanted = list(proposals)
    left: list[str] = []
    while True:
        chosen = together(case, wanted)
        out = left_out(told, [one.remedy.code for one in chosen], longest_us)
        if not out:
            return chosen, left
        left += [one.remedy.code for one in wanted if one.remedy.code in out]
        wanted = [one for one in wanted if one.remedy.code not in out]


def _root(case: Case | None, chosen: Sequence[Proposal]) -> str:
    """The folder in which the patch of all applies."""
    return "" if case is None else case.root_of([one.remedy.edit.file for one in chosen if one.remedy.edit is not None])


def predicted_of(session: Session, diagnosis: Diagnosis, codes: Collection[str]) -> Prediction | None:
    """Of the remedies with these codes together; None where one of them does not help, or cannot be predicted."""
    join = Join(session)
    view = main_view([View.of(session, trainer, join) for trainer in session.trainers])
    case = None if view is None else case_of(session, diagnosis, view, no_files())
    return _predicted_of(case, _proposals(case), codes)


def _predicted_of(case: Case | None, proposals: Sequence[Proposal], codes: Collection[str]) -> Prediction | None:
    wanted = [one for one in proposals if one.remedy.code in codes and one.remedy.helps and one.change is not None]
    return _predicted(case, wanted) if {one.remedy.code for one in wanted} == set(codes) else None


def _predicted(case: Case | None, proposals: Sequence[Proposal]) -> Prediction | None:
    """Of one by itself what it says itself: its interval may span an assumption, too."""
    if len(proposals) == 1:
        return proposals[0].remedy.prediction
    return None if case is None else predicted_together(case, proposals)


def _proposals(case: Case | None) -> list[Proposal]:
    return [] if case is None else [proposal for family in FAMILIES for proposal in family(case)]


def _observed_us(case: Case | None, view: View) -> float:
    if case is not None:
        return case.step_us
    return 0.0 if view.budget is None else view.budget.mean_us


def _others_cores(session: Session, view: View) -> float | None:
    host = host_of(session, view.trainer)
    return None if host is None else host.mean("cpu_cores_other")


def _order(proposal: Proposal) -> tuple[bool, float]:
    """Those that help first, the shortest step first, of equally short ones that of the earlier family; what cannot be
    predicted after what can."""
    remedy = proposal.remedy
    if remedy.prediction is None:
        return not remedy.helps, float("inf")
    return not remedy.helps, round(math.log(max(remedy.prediction.step_us, 1.0)) / WORTH)
