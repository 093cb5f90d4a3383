"""Prescription of a session: the remedies that help, their best combination, and the recommended next action."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from headrace.doctor.causes.case import LEAST_STEPS, SLOWED, WORTH, Case, case_of
from headrace.doctor.causes.cause import Proposal, RemedyKind, all_causes
from headrace.doctor.causes.cores import CROWDED
from headrace.doctor.causes.loader import EXACT
from headrace.doctor.causes.loop_work import EVALUATION_WAITS
from headrace.doctor.causes.remedy import (
    EFFORTS,
    Prescription,
    ProofOutcome,
    Remedy,
    control_means_us,
    left_out,
    outcomes,
)
from headrace.doctor.causes.stalled import ENDINGS
from headrace.doctor.causes.uneven_ranks import DEVICE_PARTS, SHAPES
from headrace.doctor.edits import ScriptSources, WantedEdit
from headrace.doctor.measure import (
    BOUND,
    LEAST_GAIN,
    WAIT,
    Diagnosis,
    TrainerView,
    lower_bounds,
    main_view_of,
    why_no_lower_bounds,
)
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Prediction, chained

NO_FILES = ScriptSources()
REACHES = 0.1
"""Share of the lower bound by which a step may exceed the bound and still count as reaching it."""
ADDS = 0.01
"""Minimum share of a step that a remedy must gain on top of the others to be worth its cost."""


def remedy_kinds() -> dict[str, RemedyKind]:
    return {kind.code: kind for cause in all_causes() for kind in cause.remedies}


def effort(remedy: Remedy) -> int:
    """Return the remedy's effort as an index into `EFFORTS`."""
    return EFFORTS.index(remedy.effort)


def prescribe(session: Session, diagnosis: Diagnosis, sources: ScriptSources = NO_FILES) -> Prescription:
    """Return the prescription for a session. Only `sources` reads files; without it, every change is a hint."""
    view = main_view_of(session)
    is_over = session.outcome.why in ("finished", "steps")
    end = None if is_over else next((one for one in diagnosis.findings if one.code in ENDINGS), None)
    if view is None or end is not None:
        return Prescription(None, why_no_lower_bounds(session, view), "" if end is None else end.advice)
    bounds = lower_bounds(session, view)
    why_not = why_no_lower_bounds(session, view) if bounds is None or bounds.replay_us is None else ""
    without = Prescription(bounds, why_not, _stop(diagnosis, view))
    steps = len(view.training.steps)
    if 0 < steps < LEAST_STEPS:
        units = counted(steps, f"measured {view.training.unit}")
        few = f"No remedy: {units}, fewer than the {LEAST_STEPS} that a recommendation needs."
        return replace(without, stop=few)
    case = case_of(session, diagnosis, view, sources)
    if case is None:
        return without
    proposals = [one for kind in remedy_kinds().values() if (one := kind.propose(case, kind)) is not None]
    if without.stop:  # only what makes the step itself faster
        proposals = [one for one in proposals if one.remedy.prediction is not None]
    controls_us = control_means_us(session.controls)
    told = outcomes(
        session.proofs,
        lambda codes: _predicted_of(case, proposals, codes),
        lambda codes: _left_share(case, proposals, codes),
        case.step_us,
        controls_us,
    )
    # Once a refuted remedy is left out, other remedies join, and proofs may have refuted those, too.
    left: list[str] = []
    chosen = _together(case, proposals)
    while out := left_out(told, [one.remedy.code for one in chosen]):
        left += [one.remedy.code for one in proposals if one.remedy.code in out]
        chosen = _together(case, [one for one in proposals if one.remedy.code not in left])
    edited = [(one.remedy.edit, one.wanted) for one in chosen if one.remedy.edit is not None and one.wanted is not None]
    wanted, root = WantedEdit(), case.root_of([edit.file for edit, _ in edited])
    for _, another in edited:
        wanted |= another
    return replace(
        without,
        remedies=ranked([one.remedy for one in proposals], told, None if bounds is None else bounds.replay_us),
        best=_predicted(case, chosen),
        together=[one.remedy.code for one in chosen],
        left_out=left,
        patch="".join(file.diff(root) for file in case.script.changed(wanted) or []),
        patch_root=root,
        outcomes=told,
        again_us=fmean(controls_us) if controls_us else None,
    )


def ranked(remedies: Sequence[Remedy], outcomes: Sequence[ProofOutcome], bound_us: float | None) -> list[Remedy]:
    """Sort remedies: first those that reach the lower bound with the least effort, then by predicted step.

    Proven remedies precede all others. At the end come remedies of unknown gain, refuted remedies, and remedies that
    would not help. Among steps within `WORTH` of each other, the smaller effort comes first.
    """
    last = {one.remedies[0]: one for one in outcomes if len(one.remedies) == 1}

    def order(remedy: Remedy) -> tuple[int, int, float, int]:
        if not remedy.helps or remedy.prediction is None:
            return 2 + (not remedy.helps), 0, 0.0, 0
        step_us = max(remedy.prediction.step_us, 1.0)
        if bound_us is not None and step_us <= (1 + REACHES) * bound_us:
            return 0, effort(remedy), step_us, 0
        return 1, 0, round(math.log(step_us) / WORTH), effort(remedy)

    refused = [one for one in remedies if one.helps and one.code in last and last[one.code].is_refused]
    found = sorted((one for one in remedies if one not in refused), key=order)
    proved = [(last[one.code].step_us or 0.0, one) for one in found if one.code in last and last[one.code].recommended]
    for _, remedy in sorted(proved, key=lambda one: -one[0]):
        found.remove(remedy)
        found.insert(0, remedy)
    helps = sum(one.helps for one in found)
    return [*found[:helps], *refused, *found[helps:]]


def _predicted_of(case: Case, proposals: Sequence[Proposal], codes: Collection[str]) -> Prediction | None:
    """Predict the remedies with these codes together; None if one does not help or has no prediction."""
    wanted = [one for one in proposals if one.remedy.code in codes and one.remedy.helps and one.change is not None]
    return _predicted(case, wanted) if {one.remedy.code for one in wanted} == set(codes) else None


def _left_share(case: Case, proposals: Sequence[Proposal], codes: Collection[str]) -> float:
    """Return the share of a step that these remedies must leave, by what they change."""
    known = {one.remedy.code: one.change for one in proposals if one.change is not None}
    if not case.step_us or not known.keys() >= set(codes):
        return max(1 - case.stalled, 0.0)
    return case.least_us(chained(known[code] for code in codes)) / case.step_us


def _predicted(case: Case, proposals: Sequence[Proposal]) -> Prediction | None:
    """Predict proposals together. A single proposal has its own prediction, with a wider interval for assumptions."""
    return proposals[0].remedy.prediction if len(proposals) == 1 else _simulated(case, proposals)


def _simulated(case: Case, proposals: Sequence[Proposal]) -> Prediction | None:
    changes = [one.change for one in proposals if one.change is not None]
    return case.predict(chained(changes)) if changes else None


def _together(case: Case, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Select helpful remedies one by one, each if it still gains on top of those before it.

    Injectable remedies precede manual ones, then less work precedes more workers, then the largest gain comes first. A
    Loader makes the others redundant: it comes first if it gains most. A draft of a Loader never combines.
    """
    found = [one for one in proposals if one.change is not None and one.remedy.degree in ("", EXACT)]
    shortest = min((one.remedy.prediction.step_us for one in found if one.remedy.prediction is not None), default=0.0)

    kinds = remedy_kinds()

    def order(one: Proposal) -> tuple[bool, bool, bool, float]:
        kind, prediction = kinds[one.remedy.code], one.remedy.prediction
        step_us = math.inf if prediction is None else prediction.step_us
        does_all = kind.does_all and step_us <= (1 + WORTH) * shortest
        return not does_all, one.remedy.changes is None, kind.adds_hands, step_us

    chosen: list[Proposal] = []
    step_us = case.step_us
    for one in sorted(found, key=order):
        prediction = _simulated(case, [*chosen, one])
        if prediction is not None and prediction.step_us <= (1 - ADDS) * step_us:
            chosen.append(one)
            step_us = prediction.step_us
    return chosen


def _stop(diagnosis: Diagnosis, view: TrainerView) -> str:
    """Return what limits the step instead of data; empty if the run is input-bound or the limit is unknown."""
    if view.budget is None or view.wait_share is None or (view.data_share or 0.0) >= BOUND:
        return ""
    if any(one.code in (DEVICE_PARTS, SHAPES) and one.weight >= BOUND for one in diagnosis.findings):
        return ""
    parts = view.budget.device or view.budget.parts
    others = sorted((part for part in parts if part.name != WAIT), key=lambda part: -part.share)
    bound = " and ".join(f"{part.name} ({percent(part.share)})" for part in others[:2])
    said = [f"Leave the data as it is: the run is not input-bound, since {bound} take most of a {view.training.unit}."]
    said += [finding.text for finding in diagnosis.findings if finding.code == EVALUATION_WAITS][:1]
    peers = [(rank.peer_wait_us, rank.step_us, rank.rank) for rank in diagnosis.ranks if rank.peer_wait_us]
    waited, step_us, number = max(peers, default=(0.0, 0.0, 0))
    if waited and waited >= BOUND * step_us:
        said.append(f"Rank {number} waits {duration(waited)} ({percent(waited / step_us)}) of each step for its peers.")
    return " ".join(said)


@dataclass(frozen=True)
class Recommended:
    """Remedies with their proof or prediction, or else advice in words."""

    remedies: Sequence[Remedy] = ()
    outcome: ProofOutcome | None = None
    prediction: Prediction | None = None
    stop: str = ""
    """Reason to leave the data as it is."""
    advice: str = ""
    """Advice of a finding, with an unknown gain."""


def recommended(diagnosis: Diagnosis, prescription: Prescription | None) -> Recommended | None:
    """Return the best proven remedy, else the first predicted one, else advice.

    If data does not limit the step, only a proven remedy counts. If a proof refuted a remedy, no advice is given,
    because it may amount to the same remedy. None if too few steps were seen: the end of the command then matters more.
    """
    are_few = bool(diagnosis.budgets) and all(budget.steps < LEAST_STEPS for budget in diagnosis.budgets)
    if prescription is not None and prescription.stop:
        return (None if are_few else _proved(prescription)) or Recommended(stop=prescription.stop)
    if are_few:
        return None
    if prescription is not None:
        found = gaining(prescription)
        if found is not None or any(outcome.is_refused for outcome in prescription.outcomes):
            return found
    # Crowded workers and threads make every stage slower than necessary.
    first = sorted(diagnosis.findings, key=lambda one: one.code not in CROWDED or one.weight < BOUND)
    bounds = None if prescription is None else prescription.lower_bounds
    if bounds is not None and (bounds.replay_us or 0.0) >= (1 - LEAST_GAIN) * bounds.observed_us:
        first = [one for one in first if one.weight >= 1]  # such as a process that was killed
    advice = next((finding.advice for finding in first if finding.advice), "")
    return Recommended(advice=advice) if advice else None


def gaining(prescription: Prescription) -> Recommended | None:
    """Return the best proven remedy, else the first predicted one; None without either."""
    return _proved(prescription) or _most_promising(prescription)


def _proved(prescription: Prescription) -> Recommended | None:
    """Return the remedies with the largest proven gain; None if no proof gained."""
    outcomes = {tuple(sorted(one.remedies)): one for one in prescription.outcomes}  # the last proof counts
    gained = [(one.step_us, one) for one in outcomes.values() if one.recommended and one.step_us is not None]
    if not gained:
        return None
    _, best = min(gained, key=lambda each: each[0])
    known = {one.code: one for one in prescription.remedies}
    return Recommended([known[code] for code in best.remedies if code in known], outcome=best)


def _most_promising(prescription: Prescription) -> Recommended | None:
    """Return the first remedy with a predicted gain that no proof refuted, a certain one if there is any."""
    found = []
    for remedy in prescription.helping:
        outcome, prediction = prescription.outcome_of([remedy.code]), remedy.prediction
        if prediction is not None and (outcome is None or not outcome.is_refused):
            found.append((prediction.is_certain_gain, Recommended([remedy], prediction=prediction)))
    return max(found, key=lambda one: one[0], default=(False, None))[1]


def slowed(diagnosis: Diagnosis, prescription: Prescription | None) -> Iterator[str]:
    """Yield a sentence if workers slow the training down, so that a step on cached batches is shorter."""
    bounds = None if prescription is None or prescription.stop else prescription.lower_bounds
    waits = diagnosis.wait_share
    if bounds is None or bounds.replay_us is None or waits is None:
        return
    own_us = bounds.observed_us * (1 - waits)
    if bounds.replay_us < SLOWED * own_us:
        yield (
            f"The workers slow the training down: without its waits a step takes {duration(own_us)} beside them, and "
            f"{duration(bounds.replay_us)} while they are idle."
        )
