"""A cause in one file: it reaches the session, the report, proofs and the documentation, and nothing else changes."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import generated_pages
import pytest
from made_prescriptions import made, prescribed, remedy
from made_sessions import MadeRun
from report_pages import text

from headrace.doctor import causes
from headrace.doctor.causes import EFFORTS, all_causes, diagnose, effort
from headrace.doctor.causes.prescription import remedy_kinds
from headrace.doctor.report import document
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import Session, SessionNote

NEW = """
from headrace.doctor.causes.cause import Cause, RemedyKind
from headrace.doctor.causes.remedy import SETTING
from headrace.doctor.measure import Finding

def find(run):
    for note in run.session.notes:
        yield Finding("loss-scale", 0.2, f"The loss scale falls: {note.text}.", "GradScaler", "")

def slower(case, kind):
    return kind.unpredicted(f"GradScaler skipped {case.session.notes[0].text}.")

CAUSE = Cause(
    findings={"loss-scale": "GradScaler skips steps."},
    find=find,
    explains=("loss-scale",),
    remedies=[
        RemedyKind(
            "lower-scale", "a loss scale that grows more slowly", SETTING, slower,
            hint="GradScaler(growth_interval=10_000)", costs=("a smaller scale at first",),
        )
    ],
)
"""


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Session]:
    """A run in which the new cause finds something."""
    (tmp_path / "loss_scale.py").write_text(NEW)
    monkeypatch.setattr(causes, "__path__", [*causes.__path__, str(tmp_path)])
    all_causes.cache_clear()
    session = made(MadeRun(stages={"decode:Pillow load": 8_000}))
    session.notes.append(SessionNote("scaler", "3 of 40 steps", session.trainers[0].pid))
    yield session
    all_causes.cache_clear()
    sys.modules.pop("headrace.doctor.causes.loss_scale", None)


def test_a_file_reaches_the_session(session: Session) -> None:
    told = json.loads(document(session, diagnose(session), prescribed(session)))
    found = {one["code"]: one for one in told["prescription"]["remedies"]}["lower-scale"]
    assert (found["helps"], found["costs"]) == (True, ["a smaller scale at first"])
    assert "3 of 40" in found["why"]
    assert "loss-scale" in {one["code"] for one in told["diagnosis"]["findings"]}
    assert "loss-scale" in {one["code"] for one in told["diagnosis"]["statements"]}
    assert effort(remedy(session, "lower-scale")) == 0


def test_a_file_reaches_the_report(session: Session) -> None:
    report = text(report_view(session, diagnose(session), prescribed(session)))
    assert "a loss scale that grows more slowly" in report.lower()


def test_a_file_reaches_the_documentation(session: Session) -> None:
    assert "| `lower-scale` | a loss scale that grows more slowly | a setting |" in "".join(generated_pages.remedies())
    assert "| `loss-scale` | GradScaler skips steps. |" in "".join(generated_pages.findings())


def test_the_pages_are_what_is_declared() -> None:
    assert not generated_pages.outdated(), "run scripts/generated_pages.py"


def test_declarations_are_whole() -> None:
    declared = [kind.code for cause in all_causes() for kind in cause.remedies]
    assert len(declared) == len(set(declared)) > 10
    for one in remedy_kinds().values():
        assert one.effort in EFFORTS
        assert bool(one.key) == bool(one.value)
    findings = [code for cause in all_causes() for code in cause.findings]
    assert len(findings) == len(set(findings)) > 20
    assert {code for cause in all_causes() for code in cause.explains} <= set(findings)
