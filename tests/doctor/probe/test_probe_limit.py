"""When a measured run has shown enough."""

from __future__ import annotations

import pytest

from headrace.doctor.probe.training.windows import StepLimit, StepsMeasured


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


def test_a_warm_up_that_was_asked_for_is_kept() -> None:
    limit = StepLimit(5, 1)
    limit.prefetches(100)
    assert not limit.settle(1, 1)
    assert limit.is_reached(6)


def test_a_run_that_is_only_observed_does_not_end() -> None:
    limit = StepLimit(0, None)
    assert not limit.is_reached(10**9)


def test_the_end_is_a_success() -> None:
    assert StepsMeasured().code == 0
