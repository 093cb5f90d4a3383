"""Figures of a report agree with each other: each quantity of the recorded sessions, wherever the text has it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from golden_sessions import names, prescribed, session_of
from report_pages import text

from headrace.doctor.quantities import duration, number, percent, times
from headrace.doctor.report import document, report_view

TIME = r"((?:\d+ h )?(?:\d+ min )?\d[\d,.]* (?:µs|ms|s|min)\b|–)"
SHARE = r"(<?\d[\d.]* %)"


@pytest.mark.one_in(5)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if place % 4 else ()) for place, name in enumerate(names())]
)
def test_a_quantity_is_the_same_wherever_it_is_printed(name: str, tmp_path: Path) -> None:
    session = session_of(name, tmp_path)
    diagnosis, prescription = prescribed(name, session)
    shown = " ".join(text(report_view(session, diagnosis, prescription)).split())
    budget, bounds = diagnosis.budgets_by_wait[0], prescription.lower_bounds

    def printed(*patterns: str) -> set[str]:
        return {value for pattern in patterns for value in re.findall(pattern, shown)}

    step = printed(rf"^(?:Not input-bound: )?[Aa] step takes {TIME}", rf"baseline {TIME}", rf"Step {TIME} on average")
    assert step == {duration(budget.mean_us)}
    assert printed(rf"waits {SHARE} of it for data") <= {percent(diagnosis.wait_share)}
    cached = printed(rf"{TIME} at best", rf"cached batches {TIME}(?!.*without data work)", rf"without data work {TIME}")
    assert cached <= {duration(None if bounds is None else bounds.replay_us)}
    assert len(printed(r"([\d.,]+) cores(?:' worth)? of work")) <= 1
    assert printed(r"95 % below [^·]*· ([\d,]+) (?:steps?|batch(?:es)?)\b") == {number(budget.steps)}
    own = [one for one in diagnosis.batch_production if one.trainer == budget.pid]
    if len(own) == 1 and own[0].workers:
        assert printed(r"\bin (\d+) workers?\b[,.]") <= {number(own[0].workers)}
    told = json.loads(document(session, diagnosis, prescription))
    steps_us = {one["code"]: one["prediction"] for one in told["prescription"]["remedies"]}
    for remedy in prescription.helping:
        if remedy.prediction is not None:
            step_us, speedup = remedy.prediction.step_us, remedy.prediction.speedup
            assert steps_us[remedy.code]["step_us"] == pytest.approx(step_us)
            assert f"{duration(step_us)} a step" in shown
            assert f"{times(speedup)} as fast" in shown
            assert budget.mean_us / step_us == pytest.approx(speedup, rel=0.02)  # but for what rounding hides
    assert told["first_screen"]["sentence"] in shown
