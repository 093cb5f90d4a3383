"""First steps that are slower than the rest, and loaders side by side, of made runs whose truth is known."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_findings import quantities
from made_sessions import MadeRun, made_session
from replacing import replace
from report_pages import said

from headrace.doctor.causes import diagnose
from headrace.doctor.measure.diagnosis import Finding
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import LoaderFacts

RUN = MadeRun(steps=68, stages={"decode:a": 2_000}, workers=1, forward=3_000, backward=1_500, optimizer=500)
"""Batches that are ready, and 5 ms of computing; 4 steps of warm-up."""


def found(session: Session, code: str) -> list[Finding]:
    return [one for one in diagnose(session).findings if one.code == code]


def test_the_first_epoch_is_told_from_the_steady_state(tmp_path: Path) -> None:
    slow = dict.fromkeys(range(24), 18_000)  # 19 of them measured, which fill six blocks of 3 steps and begin another
    session = made_session(tmp_path, replace(RUN, slow_batches=slow))
    (finding,) = found(session, "first-steps")
    assert quantities(finding.text)[:3] == ["26", "3.7 ×", "5.0 ms"]
    assert finding.text in said(diagnose(session))
    assert "more of it with --steps" in finding.advice


@pytest.mark.parametrize("slow", [{}, dict.fromkeys(range(0, 68, 17), 18_000), dict.fromkeys(range(40, 52), 18_000)])
def test_steps_that_are_slow_now_and_then_or_later_are_no_trend(tmp_path: Path, slow: dict[int, int]) -> None:
    assert found(made_session(tmp_path, replace(RUN, slow_batches=slow)), "first-steps") == []


def two_loaders(folder: Path) -> Session:
    """Every second batch comes of another loader's pass, whose batches the first loader's worker made."""
    session = made_session(folder, replace(RUN, stages={"decode:a": 9_000}))
    (trainer,) = session.trainers
    trainer.loaders.append(LoaderFacts(1, {**trainer.loaders[0].facts, "dataset": "train.Unlabelled", "length": 7}))
    trainer.passes.append(replace(trainer.passes[0], number=1, loader=1))
    odd = range(1, len(trainer.gets.start), 2)
    for row in odd:
        trainer.gets.pass_[row] = 1
        taken = trainer.gets.duration[row] * 3 // 4
        trainer.gets.start[row] += taken
        trainer.gets.duration[row] -= taken
    return session


def test_the_loader_that_steps_wait_for_is_named_and_stands_first(tmp_path: Path) -> None:
    diagnosis = diagnose(two_loaders(tmp_path))
    (finding,) = [one for one in diagnosis.findings if one.code == "slower-loader"]
    figures = quantities(finding.text)
    assert (figures[0], figures[-1]) == ("2", "80 %")
    assert "Unlabelled" not in finding.text
    assert "Unlabelled" in finding.evidence
    assert [one.loader for one in diagnosis.batch_production] == [0, 1]
