"""Ranks that are late or have unequal batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from statistics import fmean

from headrace.doctor.causes.case import LOW, Case, Proposal, unpredicted, would_not
from headrace.doctor.causes.remedy import Remedy
from headrace.doctor.causes.stage_names import named
from headrace.doctor.measure.diagnosis import Finding, RankView
from headrace.doctor.measure.ranks import RanksTogether, is_late
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.quantities import percent, time
from headrace.doctor.session.model import Session
from headrace.doctor.simulate.prediction import Prediction

# -- from doctor/analyse/find_ranks.py: What is odd about ranks beside each other.


MUCH = 0.01
"""Share of a step from which a wait is worth saying."""
SHOWN = 4
"""Ranks whose shapes are shown."""


def rank_findings(ranks: RanksTogether, by_rank: Sequence[RankView]) -> Iterator[Finding]:
    for rank in by_rank:
        if is_late(rank, len(by_rank)):
            yield _late(rank, by_rank)
    yield from _shapes(ranks)


def _late(rank: RankView, by_rank: Sequence[RankView]) -> Finding:
    why = (
        f"{named(rank.cause)} makes it late"
        if rank.cause is not None
        else "not for its data: what it does between its batch and the others' is longer"
    )
    others = [other for other in by_rank if other.rank != rank.rank]
    waits = [other.peer_wait_us for other in others if other.peer_wait_us is not None]
    waiting = f"; the others wait up to {time(max(waits))} of each step for a peer" if waits else ""
    data = sum(other.data_wait_us for other in others) / len(others)
    return Finding(
        code="late-rank",
        weight=rank.late * rank.lateness_us / rank.step_us,
        text=f"Rank {rank.rank} is the last in {percent(rank.late)} of the steps, {time(rank.lateness_us)} after the "
        f"others; {why}.",
        evidence=f"it waits {time(rank.data_wait_us)} of each step for data, the others {time(data)}{waiting}",
        advice="Look at what differs for this rank: its shard, its disk, its cores, what else runs beside it.",
    )


def _shapes(ranks: RanksTogether) -> Iterator[Finding]:
    """Ranks wait for the one with most to do, so unequal shapes cost all of them."""
    differing = {
        number: shapes
        for number, steps in ranks.steps.items()
        if len(set(shapes := [_shape(view, step.gets) for view, step in zip(ranks.views, steps, strict=True)])) > 1
    }
    if not differing:
        return
    number, shapes = next(iter(differing.items()))
    waited = max(_waited_us(ranks, differing) - _waited_us(ranks, ranks.steps.keys() - differing.keys()), 0.0)
    share, step_us = len(differing) / len(ranks.steps), _step_us(ranks)
    shown = [f"rank {view.trainer.rank} {shape}" for view, shape in zip(ranks.views, shapes, strict=True)]
    yield Finding(
        code="shapes-differ",
        weight=share * waited / step_us,
        text=f"Shapes of batches differ across ranks in {percent(share)} of the steps"
        f"{_waiting(waited / step_us, waited)}.",
        evidence=f"step {number}: {', '.join(shown[:SHOWN])}{', …' if len(shown) > SHOWN else ''}",
        advice="Look at how sizes are drawn: by the step, from a seed that all ranks share, all ranks have the same.",
    )


def _waiting(share: float, us: float) -> str:
    return f"; in these a rank waits {time(us)} on average for the one that computes longest" if share >= MUCH else ""


def _waited_us(ranks: RanksTogether, numbers: Collection[int]) -> float:
    """What a rank waits on average in these steps for the one that computes longest: until its gradients are done, or
    where those moments are not known, until it comes to where the ranks meet. 0 without steps."""
    computing = [times for number in numbers if (times := _computing_us(ranks, number, ranks.stamped)) is not None]
    if not computing:
        computing = [times for number in numbers if (times := _computing_us(ranks, number, ranks.arrivals)) is not None]
    return fmean(max(times) - fmean(times) for times in computing) if computing else 0.0


def _computing_us(
    ranks: RanksTogether, number: int, moments: Callable[[int], list[float] | None]
) -> list[float] | None:
    """By rank, from the end of the step before to that moment, but for the wait for data, which has other causes. All
    steps begin together, since the one before has ended when all ranks had met."""
    reached = moments(number)
    if reached is None:
        return None
    waits = [
        sum(view.trainer.gets.duration[row] for row in step.gets)
        for view, step in zip(ranks.views, ranks.steps[number], strict=True)
    ]
    return [moment - wait for moment, wait in zip(reached, waits, strict=True)]


def _step_us(ranks: RanksTogether) -> float:
    return fmean(step.duration for steps in ranks.steps.values() for step in steps)


def _shape(view: TrainerView, gets: Sequence[int]) -> str:
    numbers = [view.trainer.gets.shape[row] for row in gets]
    return " + ".join("?" if number is None else view.trainer.shapes[number] for number in numbers)


# -- from doctor/remedies/ranks.py: Several devices: one shape on every rank, and a process for each device.


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
