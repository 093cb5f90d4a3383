"""Prescription: remedies that help, their best combination, and the lower bounds of the step."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import reduce
from statistics import fmean

from headrace.doctor.causes.case import WORTH, Case, case_of
from headrace.doctor.causes.loader import EXACT
from headrace.doctor.causes.proposals import Proposal
from headrace.doctor.causes.remedies import effort, kind_of, proposals_of
from headrace.doctor.causes.remedy import (
    LEAST_STEPS,
    LowerBounds,
    Prescription,
    ProofOutcome,
    Remedy,
    cached_step_us,
    left_out,
    outcomes,
)
from headrace.doctor.edits import ScriptSources, WantedEdit
from headrace.doctor.measure import (
    BOUND,
    DRAIN,
    LOAD,
    OBSERVE,
    REPLAY,
    WAIT,
    Diagnosis,
    Join,
    TrainerView,
    main_view_of,
    options_for,
    pass_of,
    queue_of,
    replayed_work_us,
    window,
    window_us,
)
from headrace.doctor.quantities import counted, duration, percent
from headrace.doctor.session.model import Session
from headrace.doctor.simulate import Prediction

NO_FILES = ScriptSources()
REACHES = 0.1
"""Share of the lower bound by which a step may exceed the bound and still count as reaching it."""
ADDS = 0.01
"""Minimum share of a step that a remedy must gain on top of the others to be worth its cost."""


def prescribe(session: Session, diagnosis: Diagnosis, sources: ScriptSources = NO_FILES) -> Prescription:
    """Return the prescription for a session. Only `sources` reads files; without it, every change is a hint."""
    view = main_view_of(session)
    if view is None:
        return Prescription(None, why_no_lower_bounds(session, None), "")
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
    proposals = proposals_of(case)
    if without.stop:  # only what makes the step itself faster
        proposals = [one for one in proposals if one.remedy.prediction is not None]
    again_us, others_cores = None, None if case.host is None else case.host.mean("cpu_cores_other")
    if session.control is not None and session.control.steps:
        again_us, others_cores = fmean(session.control.steps), session.control.others_cores
    before = [case.step_us] if again_us is None else [case.step_us, again_us]
    told = outcomes(session.proofs, lambda codes: _predicted_of(case, proposals, codes), before, others_cores)
    # Once a refuted remedy is left out, other remedies join, and proofs may have refuted those, too.
    left: list[str] = []
    chosen = _together(case, proposals)
    while out := left_out(told, [one.remedy.code for one in chosen]):
        left += [one.remedy.code for one in proposals if one.remedy.code in out]
        chosen = _together(case, [one for one in proposals if one.remedy.code not in left])
    edited = [(one.remedy.edit, one.wanted) for one in chosen if one.remedy.edit is not None and one.wanted is not None]
    wanted, root = WantedEdit(), case.root_of([edit.file for edit, _ in edited])
    for _, another in edited:
        wanted = wanted.with_(another)
    return replace(
        without,
        remedies=ranked([one.remedy for one in proposals], told, None if bounds is None else bounds.replay_us),
        best=_predicted(case, chosen),
        together=[one.remedy.code for one in chosen],
        left_out=left,
        patch="".join(file.diff(root) for file in case.script.changed(wanted) or []),
        patch_root=root,
        outcomes=told,
        again_us=again_us,
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


def _predicted(case: Case, proposals: Sequence[Proposal]) -> Prediction | None:
    """Predict proposals together. A single proposal has its own prediction, with a wider interval for assumptions."""
    return proposals[0].remedy.prediction if len(proposals) == 1 else _simulated(case, proposals)


def _simulated(case: Case, proposals: Sequence[Proposal]) -> Prediction | None:
    changes = [one.change for one in proposals if one.change is not None]
    return (
        case.predict(lambda setup: reduce(lambda before, change: change(before), changes, setup)) if changes else None
    )


def _step_us(proposal: Proposal) -> float:
    return math.inf if proposal.remedy.prediction is None else proposal.remedy.prediction.step_us


def _together(case: Case, proposals: Sequence[Proposal]) -> list[Proposal]:
    """Select helpful remedies one by one, each if it still gains on top of those before it.

    Injectable remedies precede manual ones, then less work precedes more workers, then the largest gain comes first. A
    Loader makes the others redundant: it comes first if it gains most. A draft of a Loader never combines.
    """
    found = [one for one in proposals if one.change is not None and one.remedy.degree in ("", EXACT)]
    shortest = min((one.remedy.prediction.step_us for one in found if one.remedy.prediction is not None), default=0.0)

    def order(one: Proposal) -> tuple[bool, bool, bool, float]:
        step_us = _step_us(one)
        kind = kind_of(one.remedy)
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
    parts = view.budget.device or view.budget.parts
    others = sorted((part for part in parts if part.name != WAIT), key=lambda part: -part.share)
    bound = " and ".join(f"{part.name} ({percent(part.share)})" for part in others[:2])
    said = [f"Leave the data as it is: the run is not input-bound, since {bound} take most of a {view.training.unit}."]
    said += [finding.text for finding in diagnosis.findings if finding.code == "evaluation"][:1]
    peers = [(rank.peer_wait_us, rank.step_us, rank.rank) for rank in diagnosis.ranks if rank.peer_wait_us]
    waited, step_us, number = max(peers, default=(0.0, 0.0, 0))
    if waited and waited >= BOUND * step_us:
        said.append(f"Rank {number} waits {duration(waited)} ({percent(waited / step_us)}) of each step for its peers.")
    return " ".join(said)


def lower_bounds(session: Session, view: TrainerView) -> LowerBounds | None:
    """Return the lower bounds of one trainer's step; None if the run had no windows."""
    trainer = view.trainer
    if view.budget is None or window(trainer, REPLAY) is None:
        return None
    replay_us = cached_step_us(session, view)
    return LowerBounds(
        observed_us=view.budget.mean_us,
        replay_us=replay_us,
        work_us=0.0 if replay_us is None else replayed_work_us(trainer),
        load_us=None if replay_us is None else window_us(trainer, LOAD),
        drain_us=_drain_us(session, view),
    )


def why_no_lower_bounds(session: Session, view: TrainerView | None) -> str:
    """Return why there are no lower bounds; empty if there are."""
    if session.mode != "measure":
        return "The run was only observed, as requested."
    said = next((note.text for note in session.notes if note.code in ("no-replay", "enough")), "")
    if said:
        return said
    if view is not None and window(view.trainer, REPLAY) is not None:
        beaten = view.budget is not None and cached_step_us(session, view) is None
        return "A proof's steps are shorter than those on cached batches, so these bound nothing." if beaten else ""
    if view is not None and window(view.trainer, OBSERVE) is not None:
        return "The run ended before anything was replayed."
    seen = 0 if view is None else view.training.seen
    said = f"The run ended after {counted(seen, 'step')}, before cached batches were tried."
    options = options_for(seen)
    return f"{said} {options} leaves room for them." if options else f"{said} That takes a longer run."


def _drain_us(session: Session, view: TrainerView) -> float | None:
    """Return the mean time between batches while the training pauses; None for fewer than one batch per worker.

    Batches that were ready at the start of the window say nothing about the workers' pace and do not count. A batch
    without a record of its production counts if the queue had no room for it.
    """
    trainer, drained, began = view.trainer, view.trainer.drained, window(view.trainer, DRAIN)
    if began is None or not drained.start or not view.training.steps:
        return None
    join = Join(session)
    passes = {number: one for number, one in pass_of(trainer).items() if number in drained.pass_}
    finders = {number: join.finder(trainer, one) for number, one in passes.items()}
    made = 0
    for position, (number, index) in enumerate(zip(drained.pass_, drained.index, strict=True)):
        if number not in finders:
            continue
        found = finders[number].batch(index)
        if found is None:
            made += position >= queue_of(trainer, passes[number].loader)
        else:
            sent = found.maker.batches.sent[found.row]
            made += sent is None or sent > began.start
    if made < max([1, *(len(one.workers) for one in passes.values())]):
        return None
    taken = drained.start[-1] + drained.duration[-1] - began.start
    return taken / made * len(view.training.gets) / len(view.training.steps)
