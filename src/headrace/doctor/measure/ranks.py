"""Comparison of ranks: which arrives last, by how much, and which waits for a peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from headrace.doctor.measure.diagnosis import RankView
from headrace.doctor.measure.steps import WAIT, MeasuredStep
from headrace.doctor.measure.view import TrainerView
from headrace.doctor.session.trainers import Trainer

OFTEN = 1.5
"""Multiple of its fair share (1/n of the steps with n equal ranks) above which a rank is last too often."""
MUCH = 0.01
"""Minimum mean lateness, as a share of a step."""
BY_DATA = 0.5
"""Share of its lateness that its longer data stall must explain to be the cause."""


class StepMoments(NamedTuple):
    """Moments of one rank's step on the first rank's clock, each None if unknown."""

    ready: float | None
    """End of its own gradients."""
    backward: float | None
    """Start of the first backward pass after its last batch, the one that shares gradients."""
    collective: float | None
    """Start of its first synchronous collective."""
    shared: float | None
    """End of its last backward pass, and of gradient sharing."""


@dataclass(frozen=True)
class RanksTogether:
    """Ranks of one training, and the steps that all of them measured.

    `steps[number]` has one step per rank, in their order; `ahead[place]` is the offset of the clock of that rank's host
    to the first rank's.
    """

    views: list[TrainerView]
    steps: dict[int, list[MeasuredStep]]
    ahead: list[float]

    def arrivals(self, number: int) -> list[float] | None:
        """Return when each rank was ready for the others; None if no kind of moment is known for all.

        In order of preference: the end of its own gradients, the start of its last backward pass, its first collective.
        """
        ready, backward, collective, _ = zip(*self.moments(number), strict=True)
        return next((known for times in (ready, backward, collective) if (known := _known(times)) is not None), None)

    def is_apart(self, number: int) -> bool:
        """Return True if a rank ended its step before another was ready; False with a GPU, whose queue works on."""
        arrivals, steps = self.arrivals(number), self.steps[number]
        devices = (view.trainer.steps.device for view in self.views)
        queued = any(step.row is not None and of[step.row] for of, step in zip(devices, steps, strict=True))
        ends = [step.end - ahead for step, ahead in zip(steps, self.ahead, strict=True)]
        return arrivals is not None and not queued and min(ends) < max(arrivals)

    def stamped(self, number: int) -> list[float] | None:
        """Return when each rank's own gradients were done; None if unknown for any."""
        return _known([one.ready for one in self.moments(number)])

    def moments(self, number: int) -> list[StepMoments]:
        found = []
        for view, step, ahead in zip(self.views, self.steps[number], self.ahead, strict=True):
            steps = view.trainer.steps
            spans = [] if step.row is None else steps.spans[step.row]
            last = max((view.trainer.gets.start[row] for row in step.gets), default=step.start)
            times = (
                None if step.row is None else steps.ready[step.row],
                next((start for kind, start, _ in spans if kind == "b" and start >= last), None),
                next((start for kind, start, _ in spans if kind == "c"), None),
                max((start + duration for kind, start, duration in spans if kind == "b"), default=None),
            )
            found.append(StepMoments(*(None if time is None else time - ahead for time in times)))
        return found


def _known(times: Sequence[float | None]) -> list[float] | None:
    known = [time for time in times if time is not None]
    return known if len(known) == len(times) else None


def ranks_together(views: Sequence[TrainerView]) -> RanksTogether | None:
    """Combine a session's ranks, the longest training of each; None with fewer than two, or no common steps."""
    longest: dict[int, TrainerView] = {}
    for view in views:
        rank = view.trainer.rank
        if view.training.unit == "step" and (
            rank not in longest or len(view.training.steps) > len(longest[rank].training.steps)
        ):
            longest[rank] = view
    ranks = [longest[rank] for rank in sorted(longest)]
    by_number = [{step.number: step for step in view.training.steps} for view in ranks]
    numbers = set.intersection(*map(set, by_number)) if len(ranks) > 1 else set()
    if not numbers:
        return None
    steps = {number: [steps[number] for steps in by_number] for number in sorted(numbers)}
    return RanksTogether(ranks, steps, _ahead(ranks, steps))


def _ahead(ranks: Sequence[TrainerView], steps: dict[int, list[MeasuredStep]]) -> list[float]:
    """Return the offset of each rank's clock. Ranks on one host share its clock.

    Steps end at about the same time everywhere, since ranks wait for one another, so the median over all steps gives
    the offset between hosts.
    """
    hosts = {ranks[0].trainer.host: 0.0}
    for place, view in enumerate(ranks):
        if view.trainer.host not in hosts:
            hosts[view.trainer.host] = median(of[place].end - of[0].end for of in steps.values())
    return [hosts[view.trainer.host] for view in ranks]


class PeerWait(NamedTuple):
    """Mean microseconds per step of one rank."""

    wait_us: float
    own_us: float


def peer_waits(ranks: RanksTogether) -> list[PeerWait] | None:
    """Return each rank's wait for its peers; None if neither gradient times nor collectives were recorded.

    A backward pass that shares gradients does not separate waiting from work. A collective begins when its last rank
    arrives: the others wait until then.
    """
    stamped = [
        [PeerWait(0.0, 0.0)] * len(waits) if ranks.is_apart(number) else waits
        for number in ranks.steps
        if (waits := _stamped(ranks.moments(number))) is not None
    ]
    calls = [_calls(view, ahead) for view, ahead in zip(ranks.views, ranks.ahead, strict=True)]
    called = [_called([of_rank.get(number, []) for of_rank in calls]) for number in ranks.steps] if all(calls) else []
    if not stamped and not called:
        return None
    means = sum(np.mean(waits, axis=0) for waits in (stamped, called) if waits)
    return [PeerWait(*row) for row in np.asarray(means).tolist()]


def _stamped(moments: list[StepMoments]) -> list[PeerWait] | None:
    """Return the waits of a step if all ranks recorded the end of their own gradients. Backward ends with sharing."""
    pairs = [(one.ready, one.shared) for one in moments if one.ready is not None and one.shared is not None]
    if len(pairs) < len(moments):
        return None
    last = max(ready for ready, _ in pairs)
    return [PeerWait(last - ready, max(end - last, 0.0)) for ready, end in pairs]


def _calls(view: TrainerView, ahead: float) -> dict[int, list[tuple[str, float, float]]]:
    """Return name, start and duration of a rank's synchronous collectives, by step."""
    calls = view.trainer.collectives
    steps: dict[int, list[tuple[str, float, float]]] = {}
    for number, name, start, duration in zip(calls.step, calls.name, calls.start, calls.duration, strict=True):
        steps.setdefault(number, []).append((name, start - ahead, duration))
    return steps


def _called(calls: Sequence[Sequence[tuple[str, float, float]]]) -> list[PeerWait]:
    """Return the waits in a step's collectives, matched between ranks by order; 0 where they do not match."""
    waits, own = [0.0] * len(calls), [0.0] * len(calls)
    if len({tuple(name for name, _, _ in of_rank) for of_rank in calls}) == 1:
        for same in zip(*calls, strict=True):
            last = max(start for _, start, _ in same)
            for place, (_, start, duration) in enumerate(same):
                waited = min(last - start, duration)
                waits[place] += waited
                own[place] += duration - waited
    return [PeerWait(*one) for one in zip(waits, own, strict=True)]


def rank_views(ranks: RanksTogether | None) -> list[RankView]:
    """Return each rank alongside the others; empty with one rank."""
    if ranks is None:
        return []
    late, waits = _late(ranks), peer_waits(ranks)
    found = []
    for place, view in enumerate(ranks.views):
        rank = RankView(
            rank=view.trainer.rank,
            pid=view.trainer.pid,
            step_us=view.budget.mean_us if view.budget is not None else 0.0,
            late=late[place][0],
            lateness_us=late[place][1],
            peer_wait_us=None if waits is None else waits[place].wait_us,
            collective_us=None if waits is None else waits[place].own_us,
            data_wait_us=_data_wait_us(view),
            cause=None,
        )
        found.append(replace(rank, cause=_cause(ranks.views, place, rank)))
    return found


def _data_wait_us(view: TrainerView) -> float:
    return 0.0 if view.budget is None else next((part.us for part in view.budget.parts if part.name == WAIT), 0.0)


def stalls_of_peers_us(ranks: Sequence[RankView], trainer: Trainer) -> float:
    """Return the time per step spent waiting for other ranks' data stalls, which a remedy shortens, too."""
    own = next((one for one in ranks if (one.pid, one.rank) == (trainer.pid, trainer.rank)), None)
    others = [one.data_wait_us for one in ranks if one is not own]
    if own is None or own.peer_wait_us is None:
        return 0.0
    return min(own.peer_wait_us, max(others, default=0.0))


def is_late(rank: RankView, ranks: int) -> bool:
    """Return True if a rank is last more often than by chance, and by more than noise."""
    return rank.late * ranks >= OFTEN and rank.late * rank.lateness_us >= MUCH * rank.step_us > 0


def _late(ranks: RanksTogether) -> list[tuple[float, float]]:
    """Return the share of steps in which each rank was last, and the others' mean wait for it then."""
    waited: list[list[float]] = [[] for _ in ranks.views]
    known = {number: arrivals for number in ranks.steps if (arrivals := ranks.arrivals(number)) is not None}
    for arrivals in (arrivals for number, arrivals in known.items() if not ranks.is_apart(number)):
        last = max(range(len(arrivals)), key=arrivals.__getitem__)
        waited[last].append(arrivals[last] - fmean(time for place, time in enumerate(arrivals) if place != last))
    return [(len(times) / max(len(known), 1), fmean(times) if times else 0.0) for times in waited]


def _cause(views: Sequence[TrainerView], place: int, rank: RankView) -> str | None:
    """Return the stage that exceeds the other ranks' most; None if the rank is not late by a longer data stall."""
    if not is_late(rank, len(views)):
        return None
    view, others = views[place], [view for at, view in enumerate(views) if at != place]
    longer = rank.data_wait_us - fmean(_data_wait_us(other) for other in others)
    if longer < BY_DATA * rank.late * rank.lateness_us:
        return None
    own, theirs = _stage_us(view), [_stage_us(other) for other in others]
    excess = {stage: us - fmean(of.get(stage, 0.0) for of in theirs) for stage, us in own.items()}
    worst = max(excess, key=excess.__getitem__, default=None)
    return worst if worst is not None and excess[worst] > 0 else None


def _stage_us(view: TrainerView) -> dict[str, float]:
    """Return the cost of a sample by stage, in the loader with the most production."""
    return {
        f"{part.category}:{part.label}": part.wall_us for making in view.batch_production[:1] for part in making.stages
    }
