"""Where there is nothing to gain from data: what bounds the step instead."""

from __future__ import annotations

from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.causes.remedy import Floors
from headrace.doctor.causes.verdict import BOUND
from headrace.doctor.measure.diagnosis import Diagnosis
from headrace.doctor.measure.view import View
from headrace.doctor.quantities import percent, time


def stop(diagnosis: Diagnosis, view: View | None, floors: Floors | None) -> str:
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


def _floor(floors: Floors | None) -> list[str]:
    if floors is None or floors.replay_us is None:
        return []
    return [f"On batches that were kept a step takes {time(floors.replay_us)}: no loader makes it shorter."]
