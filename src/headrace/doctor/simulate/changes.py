"""Changes of a setup: settings, and the share of a stage's time that a remedy leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from headrace.doctor.measure import StagePart
from headrace.doctor.quantities import percent
from headrace.doctor.simulate.work import FeedSetup, StageChange

Change = Callable[[FeedSetup], FeedSetup]
"""Function that returns a changed setup, for a what-if simulation."""


@dataclass(frozen=True)
class Factor:
    """Shares of the current time that a remedy leaves: lower bound, usual value, upper bound."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str
    """Sentence on the basis of the factor."""


def untimed(least: float, most: float) -> Factor:
    """Return a factor between two assumed bounds."""
    basis = f"The prediction assumes {percent(least)} to {percent(most)} of the time."
    return Factor(least, (least + most) / 2, most, False, basis)


def setting(**values: Any) -> Change:
    """Return the change that sets these fields of a setup."""
    return lambda setup: replace(setup, **values)


def chained(changes: Iterable[Change]) -> Change:
    """Return the change that makes these one after another."""
    listed = list(changes)
    return lambda setup: reduce(lambda before, change: change(before), listed, setup)


def name_of(stage: StagePart) -> str:
    return f"{stage.category}:{stage.label}"


def scaled(stages: Sequence[StagePart]) -> Callable[[float], Change]:
    """Return a function from the remaining share to a change that scales the stages, on top of earlier changes."""

    def leaving(left: float) -> Change:
        def change(setup: FeedSetup) -> FeedSetup:
            after = {name_of(one): setup.stages.get(name_of(one), StageChange()).scaled(left) for one in stages}
            return replace(setup, stages={**setup.stages, **after})

        return change

    return leaving
