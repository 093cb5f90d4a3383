"""What is odd about ranks beside each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .advice import named
from .diagnosis import Finding, RankView
from .ranks import is_late
from .together import Together
from .view import View
from .words import percent, time

SHOWN = 4
"""Ranks whose shapes are shown."""


def rank_findings(ranks: Together, by_rank: Sequence[RankView]) -> Iterator[Finding]:
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


def _shapes(ranks: Together) -> Iterator[Finding]:
    """Ranks wait for the one with most to do, so unequal shapes cost all of them."""
    differing = {
        number: shapes
        for number, steps in ranks.steps.items()
        if len(set(shapes := [_shape(view, step.gets) for view, step in zip(ranks.views, steps, strict=True)])) > 1
    }
    if not differing:
        return
    number, shapes = next(iter(differing.items()))
    shown = [f"rank {view.trainer.rank} {shape}" for view, shape in zip(ranks.views, shapes, strict=True)]
    yield Finding(
        code="shapes-differ",
        weight=0.0,
        text=f"Shapes of batches differ across ranks in {percent(len(differing) / len(ranks.steps))} of the steps.",
        evidence=f"step {number}: {', '.join(shown[:SHOWN])}{', …' if len(shown) > SHOWN else ''}",
        advice="Look at how samples are shared out: the ranks wait for the one whose batch takes longest.",
    )


def _shape(view: View, gets: Sequence[int]) -> str:
    numbers = [view.trainer.gets.shape[row] for row in gets]
    return " + ".join("?" if number is None else view.trainer.shapes[number] for number in numbers)
