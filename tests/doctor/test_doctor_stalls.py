"""Runs that stand still: ended by the doctor, with the cause that was planted; and pauses, which are none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from observed_runs import measured, python, torchrun

from headrace.doctor.causes.stalled import STALLS

PLANTED = {"ranks": "stalled-ranks", "stopped": "stalled-worker", "lock": "stalled-lock", "server": "stalled-server"}
PLANTED |= {"unsent": "stalled-worker", "never": "stalled-sample", "alone": "stalled-sample"}
STANDSTILL_S = dict.fromkeys(PLANTED, 14.0) | {"ranks": 4.0, "unsent": 4.0}
"""After the stack of a batch that hangs, at 10 s, where the cause follows from it."""


@pytest.mark.one_in(4)
@pytest.mark.parametrize("kind", PLANTED)
def test_a_run_that_stands_still_is_ended_and_explained(kind: str, tmp_path: Path) -> None:
    command = torchrun(2, "stalls.py", kind) if kind == "ranks" else python("stalls.py", kind)
    run = measured(command, tmp_path, "--steps", "1000", standstill_s=STANDSTILL_S[kind])
    assert run.session.outcome.why == "stalled"
    first = run.diagnosis.findings[0]
    assert first.code == PLANTED[kind] == run.diagnosis.ending[0].code
    assert "stalls.py:" in first.evidence
    assert first.advice in " ".join(run.out.split()).replace("→ ", "")
    assert kind != "alone" or "(stand)" in first.text, "without workers, the training thread's stack names the sample"


@pytest.mark.parametrize(("kind", "standstill_s"), [("pauses", 3.0), ("startup", 4.0)])
def test_a_pause_is_no_standstill(kind: str, standstill_s: float, tmp_path: Path) -> None:
    began = time.monotonic()
    run = measured(python("stalls.py", kind), tmp_path, "--steps", "1000", standstill_s=standstill_s)
    assert time.monotonic() - began > standstill_s
    assert run.session.outcome.why == "finished"
    assert not set(STALLS) & {one.code for one in run.diagnosis.findings}
