"""Waiting for a peer, apart from the collectives' own time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import NamedTuple

from headrace.doctor.analyse.together import Together
from headrace.doctor.measure.view import View


class PeerWait(NamedTuple):
    """Mean microseconds a step of one rank."""

    wait_us: float
    own_us: float


class Call(NamedTuple):
    """One synchronous collective."""

    name: str
    start: float
    duration: float


def peer_waits(ranks: Together) -> list[PeerWait] | None:
    """By rank; None where neither gradients were stamped nor collectives called, since a backward pass that shares
    gradients does not tell its waiting from its work.

    A collective begins when its last rank arrives: until then the others wait, from then on it works.
    """
    stamped = [wait for number in ranks.steps if (wait := _stamped(ranks, number)) is not None]
    calls = [_calls(view, ahead) for view, ahead in zip(ranks.views, ranks.ahead, strict=True)]
    called = [_called([of_rank.get(number, []) for of_rank in calls]) for number in ranks.steps] if all(calls) else []
    if not stamped and not called:
        return None
    return [
        PeerWait(
            _mean([step[place].wait_us for step in stamped]) + _mean([step[place].wait_us for step in called]),
            _mean([step[place].own_us for step in stamped]) + _mean([step[place].own_us for step in called]),
        )
        for place in range(len(ranks.views))
    ]


def _stamped(ranks: Together, number: int) -> list[PeerWait] | None:
    """Of a step whose ranks all stamped when their own gradients were done: backward ends with their sharing."""
    pairs = list(_ready_and_end(ranks, number))
    if len(pairs) < len(ranks.views):
        return None
    last = max(ready for ready, _ in pairs)
    return [PeerWait(last - ready, max(end - last, 0.0)) for ready, end in pairs]


def _ready_and_end(ranks: Together, number: int) -> Iterator[tuple[float, float]]:
    for view, step, ahead in zip(ranks.views, ranks.steps[number], ranks.ahead, strict=True):
        steps = view.trainer.steps
        ready = None if step.row is None else steps.ready[step.row]
        spans = [] if step.row is None else steps.spans[step.row]
        end = max((start + duration for kind, start, duration in spans if kind == "b"), default=None)
        if ready is not None and end is not None:
            yield ready - ahead, end - ahead


def _calls(view: View, ahead: float) -> dict[int, list[Call]]:
    """A rank's synchronous collectives, by step."""
    calls = view.trainer.collectives
    steps: dict[int, list[Call]] = {}
    for number, name, start, duration in zip(calls.step, calls.name, calls.start, calls.duration, strict=True):
        steps.setdefault(number, []).append(Call(name, start - ahead, duration))
    return steps


def _called(calls: Sequence[Sequence[Call]]) -> list[PeerWait]:
    """The calls of a step, by rank: the first of one with the first of each other, and so on. Where ranks do not call
    the same, nothing can be said of it."""
    if len({tuple(call.name for call in of_rank) for of_rank in calls}) != 1:
        return [PeerWait(0.0, 0.0)] * len(calls)
    waits = [
        [min(max(call.start for call in same) - own.start, own.duration) for own in same]
        for same in zip(*calls, strict=True)
    ]
    return [
        PeerWait(wait, sum(call.duration for call in of_rank) - wait)
        for place, of_rank in enumerate(calls)
        for wait in [sum(of_call[place] for of_call in waits)]
    ]


def _mean(values: list[float]) -> float:
    return fmean(values) if values else 0.0
