"""Runs that end before all steps were observed: what is replayed at the end of a short first epoch, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from probing import notes, probed, records
from training_loops import Loop, loader
from windowed_runs import windows

from headrace.doctor.probe.training.received_batches import FetchedBatch
from headrace.doctor.probe.training.step_limit import (
    FEWEST_REPLAYED,
    NARROW_AFTER,
    SETTLING_STEPS,
    StepLimit,
    StepsMeasured,
    replayed_steps,
)
from headrace.doctor.probe.training.steps import OptimizerStep

ASKED: dict[str, Any] = {"observe": False, "steps": 200, "replay": 40, "drain_s": 5.0}


def trained(folder: Path, epochs: int, batches: Any, **changed: Any) -> int:
    """Train for so many epochs, and return the batches that the loop has seen."""
    seen = 0
    with probed(folder, **{**ASKED, **changed}):
        loop = Loop()
        for _ in range(epochs):
            for batch in batches:
                loop.step(batch)
                seen += 1
    return seen


@pytest.mark.parametrize(
    ("epochs", "length", "replayed"),
    [(1, 12, 10), (3, 7, 7), (4, 5, FEWEST_REPLAYED), (1, 40, 10)],
    ids=["one epoch", "three epochs", "shorter than the warm-up", "40 steps"],
)
@pytest.mark.one_in(4)
def test_a_short_first_epoch_ends_with_steps_on_copies(tmp_path: Path, epochs: int, length: int, replayed: int) -> None:
    seen = trained(tmp_path, epochs, loader(4 * length))
    assert windows(tmp_path) == [("early", length, SETTLING_STEPS + replayed, SETTLING_STEPS)]
    assert seen == epochs * length + SETTLING_STEPS + replayed
    assert len(records(tmp_path, "get")) == epochs * length  # every batch of every epoch, and no copy among them
    assert len(records(tmp_path, "last")) == epochs
    assert len(records(tmp_path, "replayed")) == SETTLING_STEPS + replayed
    assert not notes(tmp_path)


def test_the_run_goes_on_to_its_other_windows(tmp_path: Path) -> None:
    with pytest.raises(StepsMeasured):
        trained(tmp_path, 100, loader(4 * 9), steps=20, replay=5, warmup=3)
    early = SETTLING_STEPS + 5
    assert windows(tmp_path) == [
        ("early", 9, early, SETTLING_STEPS),
        ("observe", 3, 20 + early, 0),
        ("replay", 23 + early, early, SETTLING_STEPS),
        ("drain", 23 + 2 * early, 0, 0),
    ]
    assert len(records(tmp_path, "get")) == 23


def test_a_schedule_that_raises_beyond_its_end_forbids_it(tmp_path: Path) -> None:
    with probed(tmp_path, **ASKED):
        loop = Loop()
        schedule = torch.optim.lr_scheduler.OneCycleLR(loop.optimizer, max_lr=0.1, total_steps=24)
        for _ in range(2):
            for batch in loader(4 * 12):
                loop.step(batch)
                schedule.step()
    assert windows(tmp_path) == []


# The plan, which is pure.


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
