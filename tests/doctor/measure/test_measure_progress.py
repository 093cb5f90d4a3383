"""The time that a diagnosis is expected to take, and the options that leave room for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from machine_findings import quantities

from headrace.doctor.measure import options_for
from headrace.doctor.probe import ProbeSettings
from headrace.doctor.quantities import about
from headrace.doctor.run import DiagnosisPlan


def plan(trial_s: float = 10.0, prove_s: float = 0.0, **changes: Any) -> DiagnosisPlan:
    asked = replace(ProbeSettings("", 0, 0, ""), steps=200, replay=40, drain_s=10.0)
    return DiagnosisPlan(replace(asked, **changes), trial_s=trial_s, prove_s=prove_s)


def test_at_the_start_it_says_how_long_it_will_take() -> None:
    assert quantities(plan().text()) == ["50 s", "100 ms", "200", "80", "60 s"]
    assert quantities(plan(0.0, 120.0, steps=5, warmup=0).text()) == ["10 s", "100 ms", "5", "10", "120 s"]


def test_each_part_takes_its_time() -> None:
    assert plan().usual_s - plan(replay=0).usual_s == pytest.approx(4.3 + 4.3 + 4.0)
    assert plan().usual_s - plan(steps=100).usual_s == pytest.approx(10.0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "about 5 s"), (43, "about 45 s"), (89, "about 90 s"), (130, "about 2 min")]
)
def test_an_estimate_has_no_digits_that_it_does_not_bear(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(("steps", "observed"), [(20, None), (21, 3), (29, 3), (35, 6), (136, 40)])
def test_options_for_a_short_run_leave_room_for_all_windows(steps: int, observed: int | None) -> None:
    assert options_for(steps) == ("" if observed is None else f"--steps {observed}")
