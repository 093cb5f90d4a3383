"""Options that leave room for all windows of a short run, and the digits of an estimated time."""

from __future__ import annotations

import pytest

from headrace.doctor.measure import options_for
from headrace.doctor.quantities import about


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "about 5 s"), (43, "about 45 s"), (89, "about 90 s"), (130, "about 2 min")]
)
def test_an_estimate_has_no_digits_that_it_does_not_bear(seconds: float, text: str) -> None:
    assert about(seconds) == text


@pytest.mark.parametrize(("steps", "observed"), [(20, None), (21, 3), (29, 8), (35, 11), (93, 40)])
def test_options_for_a_short_run_leave_room_for_a_replay(steps: int, observed: int | None) -> None:
    assert options_for(steps) == ("" if observed is None else f"--steps {observed}")
