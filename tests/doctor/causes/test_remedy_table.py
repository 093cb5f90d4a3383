"""Remedies and findings as data: a new row, and nothing else, reaches session, report, effort and documentation."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from made_prescriptions import made, prescribed, remedy
from made_sessions import MadeRun
from report_pages import text

from headrace.doctor.causes import diagnose, effort, remedies
from headrace.doctor.causes.finding_kinds import MACHINE, FindingKind
from headrace.doctor.causes.proposals import EFFORTS, RemedyKind
from headrace.doctor.causes.training_kinds import TRAINING
from headrace.doctor.report import document
from headrace.doctor.report.view import report_view
from headrace.doctor.session.model import Session, SessionNote

PAGES = Path(__file__).parents[3] / "scripts" / "doctor_pages.py"
NEW = RemedyKind(
    "lower-scale",
    "a loss scale that grows more slowly",
    "Let the loss scale grow more slowly",
    EFFORTS[0],
    finding="scaler",
    hint="GradScaler(growth_interval=10_000)",
    costs=("a smaller scale at first",),
)


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Session:
    """A run with the finding that the new row names."""
    monkeypatch.setattr(remedies, "REMEDIES", [*remedies.REMEDIES, NEW])
    session = made(MadeRun(stages={"decode:Pillow load": 8_000}))
    session.notes.append(SessionNote("scaler", "3 of 40 steps", session.trainers[0].pid))
    return session


@pytest.fixture(scope="module")
def pages() -> Any:
    spec = importlib.util.spec_from_file_location("doctor_pages", PAGES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_row_reaches_the_session_as_a_remedy(session: Session) -> None:
    told = json.loads(document(session, diagnose(session), prescribed(session)))
    found = {one["code"]: one for one in told["prescription"]["remedies"]}[NEW.code]
    assert (found["helps"], found["hint"], found["costs"]) == (True, NEW.hint, list(NEW.costs))
    assert "3 of 40" in found["why"]
    assert effort(remedy(session, NEW.code)) == 0


def test_a_row_reaches_the_report(session: Session) -> None:
    report = text(report_view(session, diagnose(session), prescribed(session)))
    assert NEW.title in report.lower()


def test_a_row_reaches_the_documentation(session: Session, pages: Any) -> None:
    page = pages.written((pages.PAGES / "remedies.md").read_text())
    assert f"| `{NEW.code}` | {NEW.what} | {NEW.effort} |" in page


def test_rows_are_whole() -> None:
    codes = [one.code for one in remedies.REMEDIES]
    assert len(codes) == len(set(codes))
    for one in remedies.REMEDIES:
        assert one.effort in EFFORTS
        assert (one.propose is None) == bool(one.finding)
        assert bool(one.key) == bool(one.value)


def test_figures_fill_a_finding() -> None:
    kind = FindingKind("code", "{many:count worker} read {read:size}", "{share:percent}", "{us:duration}", "when")
    found = kind.found(0.5, many=2, read=1_400_000, share=0.71, us=41_200)
    assert (found.text, found.evidence, found.advice) == ("2 workers read 1.4 MB", "71 %", "41.2 ms")
    assert (found.code, found.weight, kind.found(many=1, read=None, share=None, us=None).weight) == ("code", 0.5, 0.0)
    assert all(one.when and one.text and one.advice for one in (*MACHINE.values(), *TRAINING.values()))
