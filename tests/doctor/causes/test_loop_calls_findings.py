"""Reads of tensors in the loop: what they cost at most, on the CPU and where they wait for a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from machine_findings import quantities
from made_prescriptions import prescribed, remedy
from made_sessions import MadeRun, made_session
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.causes.loop_work import READS
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.session.model import Session

RUN = MadeRun(stages={"decode:a": 1_000}, workers=2, forward=7_000, backward=2_500, optimizer=500)
"""Batches that are ready, and 10 ms of computing."""


def session(folder: Path, *rows: tuple[str, str | None, int, int, int]) -> Session:
    """Calls of a step, told in two records of two steps, and before them what a warm-up did."""
    made = made_session(folder, RUN)
    last = max(made.trainers[0].steps.end)
    (process,) = (one for one in made.processes if one.role == "trainer")
    calls = [(what, place, waits, 2 * count, 2 * us) for what, place, waits, count, us in rows]
    early: dict[str, Any] = {"time": 0, "steps": 1, "calls": [("Tensor.item()", None, 0, 1, 10**9)]}
    process.facts["calls"] = [early, *({"time": last - at, "steps": 2, "calls": calls} for at in (1, 0))]
    return made


def findings(made: Session) -> list[Finding]:
    return [one for one in diagnose(made).findings if one.code == READS]


def test_reads_on_the_cpu_cost_their_time(tmp_path: Path) -> None:
    made = session(tmp_path, ("Tensor.item()", "/home/ada/train.py:31:accuracy.<locals>.<genexpr>", 0, 500, 3_000))
    (found,) = findings(made)
    assert found.code == READS
    assert found.weight == pytest.approx(0.3, rel=0.05)
    assert quantities(found.text) == ["30 %", "31"]
    assert quantities(found.evidence) == ["3.0 ms", "500 ×", "31", "3.0 ms"]
    assert found.text in said(diagnose(made))
    fewer = remedy(made, READS)
    assert fewer.prediction is not None
    assert fewer.prediction.step_us == pytest.approx(7_000, rel=0.15)


@pytest.mark.parametrize(("us", "share"), [(3_000, 0.3), (9_000, 0.1)])
def test_a_read_that_waits_costs_no_more_than_the_rest_of_the_step(tmp_path: Path, us: int, share: float) -> None:
    (found,) = findings(session(tmp_path, ("Tensor.item()", None, 1, 1, us)))
    assert found.weight == pytest.approx(share, rel=0.1)
    assert f"{found.weight * 100:.0f} %" in quantities(found.text)


def test_a_few_short_calls_are_no_finding_and_no_remedy(tmp_path: Path) -> None:
    made = session(tmp_path, ("Tensor.item()", "/a/t.py:3:f", 0, 3, 30), ("Tensor.__repr__()", "/a/t.py:3:f", 0, 1, 50))
    assert findings(made) == []
    assert READS not in {one.code for one in prescribed(made).remedies}
