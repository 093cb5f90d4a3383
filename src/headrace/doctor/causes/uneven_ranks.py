"""Uneven ranks: one that is late, batches of other shapes on each, and one process for several devices."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from statistics import fmean

from ..measure import Finding, RanksTogether, RankView, TrainerView, is_late
from ..quantities import duration, percent
from ..simulate import Prediction
from .case import LOW, Case, Proposal, RemedyFamily
from .remedy import Remedy
from .stage_names import named

SAME_SHAPE = RemedyFamily("same-shape", "one shape on every rank at each step")
DDP = RemedyFamily("ddp", "DistributedDataParallel in place of DataParallel")
MUCH = 0.01
"""Share of a step from which a wait is worth saying."""
SHOWN = 4
"""Ranks whose shapes are shown."""
OFTEN = 0.02
"""Share of the steps in which ranks have batches of other shapes."""


def rank_findings(ranks: RanksTogether, by_rank: Sequence[RankView]) -> Iterator[Finding]:
    """Yield ranks that are late, and shapes that differ."""
    for rank in by_rank:
        if not is_late(rank, len(by_rank)):
            continue
        others = [other for other in by_rank if other.rank != rank.rank]
        why = "not for its data: what it does between its batch and the others' is longer"
        if rank.cause is not None:
            why = f"{named(rank.cause)} makes it late"
        waits = [other.peer_wait_us for other in others if other.peer_wait_us is not None]
        waiting = f"; the others wait up to {duration(max(waits))} of each step for a peer" if waits else ""
        data = duration(sum(other.data_wait_us for other in others) / len(others))
        yield Finding(
            code="late-rank",
            weight=rank.late * rank.lateness_us / rank.step_us,
            text=f"Rank {rank.rank} is the last in {percent(rank.late)} of the steps, {duration(rank.lateness_us)} "
            f"after the others; {why}.",
            evidence=f"it waits {duration(rank.data_wait_us)} of each step for data, the others {data}{waiting}",
            advice="Look at what differs for this rank: its shard, its disk, its cores, what else runs alongside it.",
        )
    yield from _shapes(ranks)


def _shapes(ranks: RanksTogether) -> Iterator[Finding]:
    """Find unequal shapes: ranks wait for the one with most to do."""
    differing = {
        number: shapes
        for number, steps in ranks.steps.items()
        if len(set(shapes := [_shape(view, step.gets) for view, step in zip(ranks.views, steps, strict=True)])) > 1
    }
    if not differing:
        return
    number, shapes = next(iter(differing.items()))
    waited = max(_waited_us(ranks, differing) - _waited_us(ranks, ranks.steps.keys() - differing.keys()), 0.0)
    step_us = fmean(step.duration for steps in ranks.steps.values() for step in steps)
    waiting = ""
    if waited / step_us >= MUCH:
        waiting = f"; in these a rank waits {duration(waited)} on average for the one that computes longest"
    share = len(differing) / len(ranks.steps)
    shown = [f"rank {view.trainer.rank} {shape}" for view, shape in zip(ranks.views, shapes, strict=True)]
    yield Finding(
        code="shapes-differ",
        weight=share * waited / step_us,
        text=f"Shapes of batches differ across ranks in {percent(share)} of the steps{waiting}.",
        evidence=f"step {number}: {', '.join(shown[:SHOWN])}{', …' if len(shown) > SHOWN else ''}",
        advice="Look at how sizes are drawn: by the step, from a seed that all ranks share, all ranks have the same.",
    )


def _shape(view: TrainerView, gets: Sequence[int]) -> str:
    numbers = [view.trainer.gets.shape[row] for row in gets]
    return " + ".join("?" if number is None else view.trainer.shapes[number] for number in numbers)


def _waited_us(ranks: RanksTogether, numbers: Collection[int]) -> float:
    """Return what a rank waits on average in these steps for the one that computes longest; 0 without steps.

    A rank computes until its gradients are done, or where those moments are not known, until it comes to where the
    ranks meet. All begin together, since the step before has ended when all had met; waits for data do not count.
    """
    for moments in (ranks.stamped, ranks.arrivals):
        waits = []
        for number in numbers:
            reached = moments(number)
            if reached is not None:
                computing = [
                    moment - sum(view.trainer.gets.duration[row] for row in step.gets)
                    for moment, view, step in zip(reached, ranks.views, ranks.steps[number], strict=True)
                ]
                waits.append(max(computing) - fmean(computing))
        if waits:
            return fmean(waits)
    return 0.0


def same_shape(case: Case) -> Proposal | None:
    """Propose one shape on every rank. It gains no more than what ranks wait for each other, perhaps less."""
    if len(case.session.trainers) < 2:
        return None
    by_rank = [
        [trainer.shapes[one] if one is not None else None for one in trainer.gets.shape]
        for trainer in case.session.trainers
    ]
    known = [row for row in zip(*by_rank, strict=False) if None not in row]
    if not known:
        return SAME_SHAPE.would_not("Shapes were not seen on all ranks.")
    differing = sum(len(set(row)) > 1 for row in known) / len(known)
    if differing < OFTEN:
        return SAME_SHAPE.would_not(f"Ranks have other shapes in {percent(differing)} of the steps.")
    why = f"Ranks have batches of other shapes in {percent(differing)} of the steps, and all wait for the largest."
    hint = "headrace.BucketBatchSampler, or one random size a step, drawn from the step's number on every rank"
    costs = ["samples of a batch are drawn from one bucket of sizes"]
    waited = [one.peer_wait_us for one in case.diagnosis.ranks if one.peer_wait_us is not None]
    if not waited or not case.step_us:
        return SAME_SHAPE.unpredicted(why, costs=costs, hint=hint)
    waiting = f"{why} A rank waits {duration(fmean(waited))} a step for others."
    most = max(case.step_us - fmean(waited), 0.0)
    usual = (most + case.step_us) / 2
    prediction = Prediction(usual, most, case.step_us, case.step_us / usual)
    if not case.is_faster(prediction):
        return SAME_SHAPE.would_not(f"{waiting} That is all that it could gain.")
    return Proposal(Remedy(SAME_SHAPE.code, SAME_SHAPE.title, True, waiting, prediction, LOW, costs, hint=hint))


def ddp(case: Case) -> Proposal | None:
    """Propose DistributedDataParallel in place of DataParallel."""
    if not any(note.code == "data-parallel" for note in case.session.notes):
        return None
    return DDP.unpredicted(
        f"DataParallel copies the model to each device in every step, and one Python thread a device shares the GIL: "
        f"forward is {percent(case.view.share('forward'))} of a step.",
        costs=["a process a device (torchrun), each with workers of its own"],
        hint="torchrun --nproc-per-node DEVICES train.py, and DistributedDataParallel(model, device_ids=[local_rank])",
    )
