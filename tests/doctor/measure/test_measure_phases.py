"""Phases of a diagnosis: how long each is expected to take, and what each took."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from machine_findings import quantities

from headrace.doctor.measure import DiagnosisPlan, about, options_for, phases_text, run_phases
from headrace.doctor.session.model import CommandOutcome, Session
from headrace.doctor.session.trainers import MeasuredWindow, OptimizerSteps, Trainer

PLAN = DiagnosisPlan(steps=200, warmup=None, replay=40, drain_s=10.0, trial_s=10.0)


def test_at_the_start_it_says_how_long_it_will_take() -> None:
    assert quantities(PLAN.text()) == ["50 s", "100 ms", "200", "80"]
    small = DiagnosisPlan(steps=5, warmup=0, replay=40, drain_s=10.0, prove_s=120.0)
    assert quantities(small.text()) == ["10 s", "100 ms", "5", "10", "120 s"]


def test_what_is_left_shrinks_from_phase_to_phase_by_what_they_take() -> None:
    left = [
        PLAN.seconds_left(phase, done, 0.1)
        for phase, done in [("observe", 0), ("observe", 100), ("replay", 0), ("load", 0), ("drain", 0), ("over", 0)]
    ]
    spent = [before - after for before, after in pairwise(left)]
    assert spent == [pytest.approx(one) for one in (10.0, 10.0, 4.3, 4.3, 4.0)]
    assert left[-1] == pytest.approx(PLAN.trial_s + 6.0)


def test_of_long_steps_fewer_are_expected_where_observation_may_end_early() -> None:
    early = replace(PLAN, ends_early=True)
    assert PLAN.seconds_left("observe", 0, 1.0) - early.seconds_left("observe", 0, 1.0) == pytest.approx(140)
    assert early.seconds_left("observe", 0, 0.1) == PLAN.seconds_left("observe", 0, 0.1)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "about 5 s"), (43, "about 45 s"), (89, "about 90 s"), (130, "about 2 min")]
)
def test_an_estimate_has_no_digits_that_it_does_not_bear(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(("steps", "observed"), [(20, None), (21, 3), (29, 3), (35, 6), (136, 40)])
def test_options_for_a_short_run_leave_room_for_all_windows(steps: int, observed: int | None) -> None:
    assert options_for(steps) == ("" if observed is None else f"--steps {observed}")


def session(*windows: tuple[str, int, int]) -> Session:
    """A run of four steps of one second, from second 3 on."""
    steps = OptimizerSteps(number=list(range(4)), start=[3, 4, 5, 6], end=[4, 5, 6, 7])
    found: list[Any] = [MeasuredWindow(name, 0, 1, 0, start, end) for name, start, end in windows]
    trainer = Trainer(1, "vm", 0, steps=steps, windows=found)
    outcome = CommandOutcome(["x"], 0, "finished", 9)
    return Session("", "measure", "", None, 4, outcome, trainers=[trainer])


@pytest.mark.parametrize(
    ("windows", "rows"),
    [
        ([], [("start", 0, 3), ("observe", 3, 7), ("end", 7, 9)]),
        (
            [("observe", 4, 5), ("replay", 5, 7)],
            [("start", 0, 3), ("warm-up", 3, 4), ("observe", 4, 5), ("replay", 5, 7), ("end", 7, 9)],
        ),
    ],
    ids=["it ended first", "all windows"],
)
def test_the_phases_of_a_run_lie_end_to_end(windows: list[Any], rows: list[Any]) -> None:
    assert run_phases(session(*windows), 9) == rows


def test_phases_in_words() -> None:
    run = session()
    assert phases_text(run) == ""
    run.phases = [("start", 0, 3_000_000), ("trial", 3_000_000, 5_000_000), ("trial", 6_000_000, 7_500_000)]
    assert phases_text(run).split(" · ") == ["start 3.0 s", "trial 3.5 s", "all 7.5 s"]
