"""Runs that stand still: ended by the doctor, with the cause that was planted; and pauses, which are none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from observed_runs import measured, python, torchrun

from headrace.doctor.causes.stalled import STALLS

STANDSTILL_S = 14.0  # after the stack of a worker whose batch hangs, at 10 s
PLANTED = {"ranks": "stalled-ranks", "stopped": "stalled-worker", "lock": "stalled-lock", "unsent": "stalled-worker"}
PLANTED |= {"server": "stalled-server", "never": "stalled-sample"}


def planted(kind: str, *arguments: object) -> list[str]:
    return torchrun(2, "stalls.py", kind) if kind == "ranks" else python("stalls.py", kind, *arguments)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("kind", PLANTED)
def test_a_run_that_stands_still_is_ended_and_explained(kind: str, tmp_path: Path) -> None:
    run = measured(planted(kind), tmp_path, "--steps", "1000", standstill_s=STANDSTILL_S)
    assert run.session.outcome.why == "stalled"
    first = run.diagnosis.findings[0]
    assert first.code == PLANTED[kind] == run.diagnosis.ending[0].code
    assert "stalls.py:" in first.evidence
    assert first.advice in " ".join(run.out.split()).replace("→ ", "")


def test_a_sample_without_workers_is_named_by_the_training_threads_stack(tmp_path: Path) -> None:
    run = measured(planted("never", "--workers", "0"), tmp_path, "--steps", "1000", standstill_s=STANDSTILL_S)
    assert run.diagnosis.findings[0].code == "stalled-sample"
    assert "(stand)" in run.diagnosis.findings[0].text


@pytest.mark.parametrize(("kind", "standstill_s"), [("pause", 3.0), ("subprocess", 3.0), ("startup", 8.0)])
def test_a_pause_is_no_standstill(kind: str, standstill_s: float, tmp_path: Path) -> None:
    began = time.monotonic()
    run = measured(planted(kind), tmp_path, "--steps", "1000", standstill_s=standstill_s)
    assert time.monotonic() - began > standstill_s
    assert run.session.outcome.why == "finished"
    assert not set(STALLS) & {one.code for one in run.diagnosis.findings}
