"""Changes of a setup: settings, and the share of a stage's time that a remedy leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from statistics import median, quantiles
from typing import Any

from headrace.doctor.measure import StagePart
from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.after_run import Calibration
from headrace.doctor.simulate.work import FeedSetup, StageChange

Change = Callable[[FeedSetup], FeedSetup]
"""Function that returns a changed setup, for a what-if simulation."""
ALONGSIDE, MOST_ALONGSIDE = 1.15, 1.35
"""Slowdown of code timed alone once it runs alongside other workers: usual value and upper bound. Faster code waits for
memory more often, and shares memory with the other workers."""


@dataclass(frozen=True)
class Factor:
    """Shares of the current time that a remedy leaves: lower bound, usual value, upper bound."""

    least: float
    usual: float
    most: float
    is_measured: bool
    basis: str
    """Sentence on the basis of the factor."""


def factor(
    calibrations: Sequence[Calibration],
    code: str,
    unit: str,
    *,
    assumed: tuple[float, float],
    present_us: float | None = None,
) -> Factor:
    """Return the factor timed on the run's own files, or else a range with the bounds `assumed`.

    `present_us` is the run's own time for one unit, used if the current code was not timed again.
    """
    found = next((one for one in calibrations if (one.remedy, one.unit) == (code, unit)), None)
    now_us = [] if found is None else found.present_us or [present_us or 0.0] * len(found.other_us)
    others_us = [] if found is None else found.other_us
    shares = [min(other / now, 1.0) for other, now in zip(others_us, now_us, strict=False) if now > 0]
    if found is None or not shares:
        return untimed(*assumed)
    deciles = quantiles(shares, n=10, method="inclusive") if len(shares) > 1 else shares
    alone = median(shares)
    basis = f"Timed on {counted(len(shares), found.unit)} in the run's own files: {percent(alone)} of the time."
    return Factor(deciles[0], min(ALONGSIDE * alone, 1.0), min(MOST_ALONGSIDE * deciles[-1], 1.0), True, basis)


def untimed(least: float, most: float) -> Factor:
    """Return a factor between two assumed bounds."""
    basis = (
        f"It was not timed on the run's own files: the prediction assumes {percent(least)} to {percent(most)} of "
        "the time."
    )
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
