"""Several devices: one shape on every rank, and a process for each device."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean

from headrace.doctor.causes.case import Case
from headrace.doctor.causes.remedy import Remedy
from headrace.doctor.predict.prediction import Prediction
from headrace.doctor.quantities import percent, time
from headrace.doctor.remedies.proposal import LOW, Proposal, unpredicted, would_not
from headrace.doctor.session.model import Session

SAME_SHAPE, DDP = "same-shape", "ddp"
OFTEN = 0.02
"""Share of the steps in which ranks have batches of other shapes."""


def same_shape(case: Case) -> Iterator[Proposal]:
    title = "one shape on every rank at each step"
    if len(case.session.trainers) < 2:
        return
    differing = differing_share(case.session)
    waited = [one.peer_wait_us for one in case.diagnosis.ranks if one.peer_wait_us is not None]
    if differing is None:
        yield would_not(SAME_SHAPE, title, "Shapes were not seen on all ranks.")
    elif differing < OFTEN:
        yield would_not(SAME_SHAPE, title, f"Ranks have other shapes in {percent(differing)} of the steps.")
    else:
        why = f"Ranks have batches of other shapes in {percent(differing)} of the steps, and all wait for the largest."
        yield _same_shape(case, title, why, fmean(waited) if waited else None)


def _same_shape(case: Case, title: str, why: str, waited_us: float | None) -> Proposal:
    """It can gain no more than what ranks wait for each other; a rank may be late for other reasons, too."""
    hint = "headrace.BucketBatchSampler, or one random size a step, drawn from the step's number on every rank"
    costs = ["samples of a batch are drawn from one bucket of sizes"]
    if waited_us is None or not case.step_us:
        return unpredicted(SAME_SHAPE, title, why, costs=costs, hint=hint)
    waiting = f"{why} A rank waits {time(waited_us)} a step for others."
    most = max(case.step_us - waited_us, 0.0)
    usual = (most + case.step_us) / 2
    prediction = Prediction(usual, most, case.step_us, case.step_us / usual)
    if not case.is_faster(prediction):
        return would_not(SAME_SHAPE, title, f"{waiting} That is all that it could gain.")
    return Proposal(Remedy(SAME_SHAPE, title, True, waiting, prediction, LOW, costs, hint=hint))


def differing_share(session: Session) -> float | None:
    """Of the steps that all ranks took, those in which their batches had other shapes."""
    by_rank = []
    for trainer in session.trainers:
        shapes = [None if number is None else trainer.shapes[number] for number in trainer.gets.shape]
        by_rank.append(shapes)
    rows = [row for row in zip(*by_rank, strict=False) if None not in row]
    return sum(len(set(row)) > 1 for row in rows) / len(rows) if rows else None


def ddp(case: Case) -> Iterator[Proposal]:
    if not any(note.code == "data-parallel" for note in case.session.notes):
        return
    yield unpredicted(
        DDP,
        "DistributedDataParallel in place of DataParallel",
        f"DataParallel copies the model to each device in every step, and one Python thread a device shares the GIL: "
        f"forward is {percent(case.view.share('forward'))} of a step.",
        costs=["a process a device (torchrun), each with workers of its own"],
        hint="torchrun --nproc-per-node DEVICES train.py, and DistributedDataParallel(model, device_ids=[local_rank])",
    )
