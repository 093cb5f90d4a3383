"""Stages of making a batch that a remedy would change: what they take, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from headrace.doctor.causes.case import Change
from headrace.doctor.measure.diagnosis import StagePart
from headrace.doctor.predict.setup import Setup, StageChange


def share_of(stages: Iterable[StagePart]) -> float:
    """Of the makers' busy time."""
    return sum(one.share for one in stages)


def name_of(stage: StagePart) -> str:
    return f"{stage.category}:{stage.label}"


def scaled(stages: Sequence[StagePart]) -> Callable[[float], Change]:
    """By what is left of them, the change; one that has been changed before is changed on top of that."""

    def leaving(left: float) -> Change:
        def change(setup: Setup) -> Setup:
            changed = {name_of(one): _scaled(setup.stages.get(name_of(one)), left) for one in stages}
            return replace(setup, stages={**setup.stages, **changed})

        return change

    return leaving


def _scaled(before: StageChange | None, left: float) -> StageChange:
    now = before if before is not None else StageChange()
    return StageChange(now.cpu * left, now.wait * left, None if now.call_us is None else now.call_us * left)
