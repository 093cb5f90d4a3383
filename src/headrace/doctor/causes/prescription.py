"""Prescription: which remedies help, together, and the step's lower bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean

from headrace.doctor.causes.case import WORTH, Case, Proposal, case_of
from headrace.doctor.causes.cores import threads
from headrace.doctor.causes.decoding import cache, native_decode
from headrace.doctor.causes.gpu import larger_batch
from headrace.doctor.causes.prefetch import prefetch
from headrace.doctor.causes.remedy import LowerBounds, Prescription, ProofOutcome, left_out, outcomes
from headrace.doctor.causes.sequences import batch_tokeniser, pad_to_batch
from headrace.doctor.causes.storage import indexed_tar, staging
from headrace.doctor.causes.transfers import device_prefetch, pin_memory, smaller_samples
from headrace.doctor.causes.uneven_ranks import ddp, same_shape
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.causes.workers import persistent_workers, start_method, workers
from headrace.doctor.edits.changes import WantedEdit
from headrace.doctor.edits.script_source import ScriptSources, no_files
from headrace.doctor.measure.batches import Join
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.host import host_of
from headrace.doctor.measure.steps import DRAIN, LOAD, OBSERVE, REPLAY, WAIT, pass_of, queue_of, window
from headrace.doctor.measure.view import TrainerView, evaluation_us, main_view, window_us
from headrace.doctor.quantities import percent, time
from headrace.doctor.session.model import MeasuredWindow, Session, Trainer
from headrace.doctor.simulate.prediction import Prediction
from headrace.doctor.simulate.work import FeedSetup

# -- from doctor/remedies/floors.py: What bounds the step, from the windows of a measured run: the loop without its
# loader, and the reverse.


def lower_bounds(session: Session, view: TrainerView) -> LowerBounds | None:
    """Of one trainer. None where it has shown nothing but how the run is: `why_no_floors` says why."""
    trainer = view.trainer
    if view.budget is None or window(trainer, REPLAY) is None:
        return None
    evaluation = fmean(evaluation_us(step) for step in view.training.steps)
    return LowerBounds(
        observed_us=view.budget.mean_us,
        replay_us=window_us(trainer, REPLAY, evaluation),
        load_us=window_us(trainer, LOAD, evaluation),
        drain_us=_drain_us(session, view),
    )


def why_no_lower_bounds(session: Session, view: TrainerView | None) -> str:
    """A sentence where there are none, else empty."""
    if session.mode != "measure":
        return "The run was only observed, as it was asked to be."
    said = next((note.text for note in session.notes if note.code == "no-replay"), "")
    if said:
        return said
    if view is None or window(view.trainer, OBSERVE) is None:
        return "The run ended before all steps that were asked for had been observed."
    return "" if window(view.trainer, REPLAY) is not None else "The run ended before anything was replayed."


def _drain_us(session: Session, view: TrainerView) -> float | None:
    """From the batches that were not ready when it began, since those that were show nothing of the workers' pace.
    None where there were fewer than one a worker."""
    drained, began = view.trainer.drained, window(view.trainer, DRAIN)
    if began is None or not drained.start or not view.training.steps:
        return None
    made = _made_meanwhile(session, view.trainer, began)
    workers = [len(one.workers) for number, one in pass_of(view.trainer).items() if number in drained.pass_]
    if made < max([1, *workers]):
        return None
    taken = drained.start[-1] + drained.duration[-1] - began.start
    return taken / made * len(view.training.gets) / len(view.training.steps)


def _made_meanwhile(session: Session, trainer: Trainer, began: MeasuredWindow) -> int:
    """Batches that came out of their makers since the window began; of those whose making is not in the evidence, such
    as did not fit into the queue."""
    join, passes, drained = Join(session), pass_of(trainer), trainer.drained
    finders = {number: join.finder(trainer, one) for number, one in passes.items() if number in drained.pass_}
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
    return made


# -- from doctor/remedies/together.py: Remedies that go together: one prediction, and one change of the user's files.


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

    def all_of_them(setup: FeedSetup) -> FeedSetup:
        for change in changes:
            setup = change(setup)
        return setup

    return case.predict(all_of_them)


def patch(case: Case, proposals: Sequence[Proposal], root: str) -> str:
    """One diff, its files named from `root` on, of what can be changed with certainty: each remedy's change beside the
    others'."""
    wanted = WantedEdit()
    for one in proposals:
        if one.remedy.edit is not None and one.wanted is not None:
            wanted = wanted.with_(one.wanted)
    return "".join(file.diff(root) for file in case.changed(wanted) or [])


# -- from doctor/remedies/table.py: All remedies that the doctor knows, in the order of docs/doctor/remedies.md.


Family = Callable[[Case], Iterator[Proposal]]

FAMILIES: tuple[Family, ...] = (
    workers,
    prefetch,
    persistent_workers,
    pin_memory,
    start_method,
    threads,
    indexed_tar,
    native_decode,
    smaller_samples,
    batch_tokeniser,
    pad_to_batch,
    cache,
    staging,
    device_prefetch,
    same_shape,
    ddp,
    larger_batch,
)


# -- from doctor/remedies/stop.py: Where there is nothing to gain from data: what bounds the step instead.


def stop(diagnosis: Diagnosis, view: TrainerView | None, floors: LowerBounds | None) -> str:
    """Empty where the run is input-bound, or where that is not known."""
    if view is None or view.budget is None or view.wait_share is None or view.wait_share >= BOUND:
        return ""
    parts = view.budget.device or view.budget.parts
    others = sorted((part for part in parts if part.name != WAIT), key=lambda part: -part.share)
    bound = ", ".join(f"{part.name} {percent(part.share)}" for part in others[:2])
    waits = f"A {view.training.unit} waits {percent(view.wait_share)} for data"
    said = f"Stop: not input-bound. {waits}; what bounds it is {bound}."
    return " ".join([said, *_evaluation(diagnosis), *_peers(diagnosis), *_floor(floors)])


def _evaluation(diagnosis: Diagnosis) -> list[str]:
    return [finding.text for finding in diagnosis.findings if finding.code == "evaluation"][:1]


def _peers(diagnosis: Diagnosis) -> list[str]:
    waits = [(rank.peer_wait_us, rank.step_us, rank.rank) for rank in diagnosis.ranks if rank.peer_wait_us]
    waited, step_us, rank = max(waits, default=(0.0, 0.0, 0))
    is_much = waited and waited >= BOUND * step_us
    return (
        [f"Rank {rank} waits {time(waited or 0)} ({percent((waited or 0) / step_us)}) of each step for its peers."]
        if is_much
        else []
    )


def _floor(floors: LowerBounds | None) -> list[str]:
    if floors is None or floors.replay_us is None:
        return []
    return [f"On batches that were kept a step takes {time(floors.replay_us)}: no loader makes it shorter."]


# -- from doctor/remedies/prescribe.py: From a session and its diagnosis to what to do.


def prescribe(session: Session, diagnosis: Diagnosis, sources: ScriptSources | None = None) -> Prescription:
    """Pure, but for reading the user's files through `sources`; without, every change is a hint."""
    join = Join(session)
    view = main_view([TrainerView.of(session, trainer, join) for trainer in session.trainers])
    if view is None:
        return Prescription(None, why_no_lower_bounds(session, None), "")
    bounds = lower_bounds(session, view)
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
        why_no_windows=why_no_lower_bounds(session, view) if bounds is None else "",
        stop=stop(diagnosis, view, bounds),
        remedies=[one.remedy for one in sorted(proposals, key=_rank)],
        best=_predicted(case, chosen),
        together=[one.remedy.code for one in chosen],
        left_out=out,
        patch="" if case is None else patch(case, chosen, root),
        patch_root=root,
        outcomes=told,
        again_us=again_us,
    )


def _chosen(
    case: Case, proposals: Sequence[Proposal], told: Sequence[ProofOutcome], longest_us: float
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
    view = main_view([TrainerView.of(session, trainer, join) for trainer in session.trainers])
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


def _observed_us(case: Case | None, view: TrainerView) -> float:
    if case is not None:
        return case.step_us
    return 0.0 if view.budget is None else view.budget.mean_us


def _others_cores(session: Session, view: TrainerView) -> float | None:
    host = host_of(session, view.trainer)
    return None if host is None else host.mean("cpu_cores_other")


def _rank(proposal: Proposal) -> tuple[bool, float]:
    """Those that help first, the shortest step first, of equally short ones that of the earlier family; what cannot be
    predicted after what can."""
    remedy = proposal.remedy
    if remedy.prediction is None:
        return not remedy.helps, float("inf")
    return not remedy.helps, round(math.log(max(remedy.prediction.step_us, 1.0)) / WORTH)
