"""How many steps are observed and replayed."""

from __future__ import annotations

import pytest

from headrace.doctor.probe.training.step_limit import (
    FEWEST_REPLAYED,
    NARROW_AFTER,
    StepLimit,
    replayed_steps,
)
from headrace.doctor.probe.training.steps import FetchedBatch, OptimizerStep


@pytest.mark.parametrize(
    ("asked", "step_s", "steps"),
    [(200, 0.1, 40), (200, 0.3, 20), (200, 2.0, FEWEST_REPLAYED), (20, 0.1, 20), (5, 0.1, 5), (1, 0.0, 5)],
)
def test_steps_that_are_replayed(asked: int, step_s: float, steps: int) -> None:
    assert replayed_steps(40, asked, step_s) == steps
    assert replayed_steps(3, asked, step_s) == 3  # never more than there may be
    assert replayed_steps(40, asked, step_s, room=7) == min(steps, 7)
    assert replayed_steps(40, asked, step_s, room=FEWEST_REPLAYED - 1) == steps  # too little


def closed(limit: StepLimit, *lengths_ms: int) -> None:
    start = 0
    for number, length_ms in enumerate(lengths_ms):
        step = OptimizerStep(number, start=start)
        step.end = start = step.start + length_ms * 1_000_000
        step.gets = [FetchedBatch(0, number, step.start, step.start + length_ms * 500_000)]
        limit.observed(step)


def limited(*lengths: int | None, enough: int = 20) -> StepLimit:
    limit = StepLimit(0, 200, enough)
    for length in lengths:
        limit.lasts(length)
    return limit


@pytest.mark.parametrize(
    ("limit", "length_ms", "observed"),
    [
        (limited(5_000), 1_000, NARROW_AFTER),
        (limited(5_000), 100, 100),
        (limited(5_000), 20, 200),
        (limited(80), 1_000, 80),
        (limited(None), 200, 150),
        (limited(5_000, enough=0), 1_000, 200),
    ],
    ids=["long steps", "ten seconds", "short steps", "a whole epoch", "of unknown length", "asked for"],
)
def test_steps_that_are_alike_are_observed_no_longer_than_tells_more(
    limit: StepLimit, length_ms: int, observed: int
) -> None:
    closed(limit, *[length_ms] * 199)
    assert not limit.is_enough  # they wait
    assert limit.is_reached(observed)
    assert not limit.is_reached(observed - 1)
    assert limit.known_within is None
