"""What the waits come from: the stages of the batches waited for, and what comes between a worker and the loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.doctor.analyse.join import Made
from headrace.doctor.measure.batches import REST, batch_stages
from headrace.doctor.measure.diagnosis import Causes, Part
from headrace.doctor.measure.waits import MAKING, UNKNOWN, UNPICKLE, Wait


def causes(pid: int, found: Iterable[Wait], steps: int, feeds: Mapping[int, dict[str, float]] | None = None) -> Causes:
    """The time that a batch was waited for because it was still being made is shared out by the stages of that very
    batch: the slow ones are those that are waited for. Where its worker handed it over late, what the worker made
    meanwhile is the cause. `feeds` has the shares of loaders that do not tell their batches one by one."""
    totals: dict[str, float] = {}
    for wait in found:
        for name, us in _causes(wait, (feeds or {}).get(wait.loader)):
            totals[name] = totals.get(name, 0) + us
    whole = sum(totals.values())
    parts = [Part(name, us / steps, us / whole) for name, us in totals.items() if us > 0]
    return Causes(pid, sorted(parts, key=lambda part: -part.us))


def _causes(wait: Wait, feed: dict[str, float] | None) -> Iterable[tuple[str, float]]:
    making = sum(wait.parts.get(name, 0) for name in MAKING)
    yield from ((name, us - _held(wait, name)) for name, us in wait.parts.items() if name not in MAKING)
    for us, made in ((making, wait.made), (wait.held, wait.holder)):
        if us > 0:
            yield from ((stage, us * share) for stage, share in _shares(made, feed).items())


def _held(wait: Wait, name: str) -> int:
    return wait.held if name == UNPICKLE else 0


def _shares(made: Made | None, feed: dict[str, float] | None) -> dict[str, float]:
    """Stages of making the batch where it was made; what comes after is a part of the wait of its own. Where its making
    was not seen, no stage is charged with it."""
    if made is None:
        return feed or {UNKNOWN: 1.0}
    stages = batch_stages(*made, serialise=False)
    whole = sum(wall for _, wall, _ in stages.values())
    return {stage: wall / whole for stage, (_, wall, _) in stages.items()} if whole > 0 else {REST: 1.0}
