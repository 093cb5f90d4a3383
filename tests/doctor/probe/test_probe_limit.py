"""When a measured run has shown enough."""

from __future__ import annotations

import pytest

from headrace.doctor.probe.training.step_limit import StepLimit
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
