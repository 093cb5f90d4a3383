"""Each rank beside the others: who is late, by how much, why, and who waits for a peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from headrace.doctor.analyse.parts import WAIT
from headrace.doctor.analyse.together import Together
from headrace.doctor.measure.diagnosis import RankView
from headrace.doctor.measure.ranks import peer_waits
from headrace.doctor.measure.view import View

OFTEN = 1.5
"""How many times its turn a rank must be the last to be called late: of n equal ranks each is in 1/n of the steps."""
MUCH = 0.01
"""Share of a step by which it must be late on average."""
BY_DATA = 0.5
"""Share of its lateness that its longer wait for data must explain for its data to be the cause."""


def rank_views(ranks: Together | None) -> list[RankView]:
    """Empty with one rank."""
    if ranks is None:
        return []
    late, lateness = _lateness(ranks)
    waits = peer_waits(ranks)
    found = [
        RankView(
            rank=view.trainer.rank,
            pid=view.trainer.pid,
            step_us=view.budget.mean_us if view.budget is not None else 0.0,
            late=late[place],
            lateness_us=lateness[place],
            peer_wait_us=None if waits is None else waits[place].wait_us,
            collective_us=None if waits is None else waits[place].own_us,
            data_wait_us=data_wait_us(view),
            cause=None,
        )
        for place, view in enumerate(ranks.views)
    ]
    return [replace(rank, cause=_cause(ranks.views, place, rank)) for place, rank in enumerate(found)]


def data_wait_us(view: View) -> float:
    return 0.0 if view.budget is None else next((part.us for part in view.budget.parts if part.name == WAIT), 0.0)


def is_late(rank: RankView, ranks: int) -> bool:
    """Oftener than chance has it, and by more than noise."""
    return rank.late * ranks >= OFTEN and rank.late * rank.lateness_us >= MUCH * rank.step_us > 0


def _lateness(ranks: Together) -> tuple[list[float], list[float]]:
    """By rank: the share of steps in which it was last, and how long the others waited for it then."""
    waited: list[list[float]] = [[] for _ in ranks.views]
    counted = 0
    for number in ranks.steps:
        arrivals = ranks.arrivals(number)
        if arrivals is None:
            continue
        counted += 1
        last = max(range(len(arrivals)), key=arrivals.__getitem__)
        others = [time for place, time in enumerate(arrivals) if place != last]
        waited[last].append(arrivals[last] - fmean(others))
    return [len(times) / max(counted, 1) for times in waited], [fmean(times) if times else 0.0 for times in waited]


def _cause(views: Sequence[View], place: int, rank: RankView) -> str | None:
    """The stage that takes its makers longest beyond what it takes the other ranks', where the rank is late because it
    waits longer for data than they do."""
    if not is_late(rank, len(views)):
        return None
    view, others = views[place], [view for at, view in enumerate(views) if at != place]
    longer = rank.data_wait_us - fmean(data_wait_us(other) for other in others)
    if longer < BY_DATA * rank.late * rank.lateness_us:
        return None
    own, theirs = _stage_us(view), [_stage_us(other) for other in others]
    excess = {stage: us - fmean(of.get(stage, 0.0) for of in theirs) for stage, us in own.items()}
    worst = max(excess, key=excess.__getitem__, default=None)
    return worst if worst is not None and excess[worst] > 0 else None


def _stage_us(view: View) -> dict[str, float]:
    """What a sample costs by stage, in the loader that makes most."""
    return {f"{part.category}:{part.label}": part.wall_us for making in view.makings[:1] for part in making.stages}
