"""When a measured run has shown enough."""

from __future__ import annotations

import pytest

from headrace.doctor.probe.training.step_limit import (
    FEWEST_LONG,
    FEWEST_REPLAYED,
    StepLimit,
    replayed_steps,
)
from headrace.doctor.probe.training.steps import FetchedBatch, OptimizerStep


@pytest.mark.parametrize(
    ("prefetched", "gets", "warmup"),
    [(0, 1, 3), (4, 1, 7), (16, 16, 4), (17, 16, 5), (4, 0, 7)],
    ids=["no workers", "each batch a step", "one step empties the queue", "not quite one", "batches come by a thread"],
)
def test_warm_up_empties_the_prefetch_queue(prefetched: int, gets: int, warmup: int) -> None:
    limit = StepLimit(None, 10)
    limit.prefetches(prefetched)
    assert not limit.settle(0, gets + 1)  # the first step has what a fetcher is ahead, too
    assert limit.settle(1, gets)
    assert limit.warmup == warmup
    assert not limit.is_reached(warmup + 9)
    assert limit.is_reached(warmup + 10)


def observed(limit: StepLimit, steps: int, *, waited: int) -> StepLimit:
    """Measured steps of 1 ms each, of which so many microseconds wait for a batch."""
    for number in range(steps):
        step = OptimizerStep(number, start=number * 1_000_000)
        step.end = step.start + 1_000_000
        step.gets = [FetchedBatch(0, number, step.start, step.start + waited * 1000)]
        limit.observed(step)
    return limit


def passing(*lengths: int | None, steps: int | None = 200, enough: int = 20) -> StepLimit:
    limit = StepLimit(3, steps, enough)
    for length in lengths:
        limit.lasts(length)
    return limit


def test_a_run_that_hardly_waits_ends_early() -> None:
    limit = observed(passing(5_000), 20, waited=20)
    assert limit.is_enough
    assert limit.is_reached(23)
    assert not observed(passing(5_000), 19, waited=20).is_enough


@pytest.mark.parametrize(
    ("limit", "waited"),
    [
        (passing(5_000), 30),
        (passing(150), 0),
        (passing(5_000, None), 0),
        (passing(5_000, enough=0), 0),
        (passing(5_000, steps=None), 0),
    ],
    ids=["it waits", "an epoch ends before", "of unknown length", "asked for all", "only observed"],
)
def test_a_run_of_which_less_is_sure_goes_on(limit: StepLimit, waited: int) -> None:
    assert not observed(limit, 40, waited=waited).is_enough
    assert not limit.is_reached(43)


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
        (limited(5_000), 1_000, FEWEST_LONG),
        (limited(5_000), 200, 150),
        (limited(5_000), 20, 200),
        (limited(80), 1_000, 80),
        (limited(None), 200, 150),
        (limited(5_000, enough=0), 1_000, 200),
    ],
    ids=["long steps", "thirty seconds", "short steps", "a whole epoch", "of unknown length", "asked for"],
)
def test_long_steps_are_observed_for_a_limited_time(limit: StepLimit, length_ms: int, observed: int) -> None:
    closed(limit, *[length_ms] * 199)
    assert not limit.is_enough  # they wait
    assert limit.is_reached(observed)
    assert not limit.is_reached(observed - 1)
    assert limit.is_late == (observed < 200)
