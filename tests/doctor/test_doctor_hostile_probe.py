"""A probe that fails in any of its functions: the training goes on and comes to the same, and the evidence says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from probed import merged, run_probed

FAILING = Path(__file__).with_name("failing_probe.py")


@pytest.fixture(scope="module")
def failed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("failing")
    ran = run_probed([sys.executable, str(FAILING)], folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), merged(folder)


def test_no_failure_of_the_probe_changes_the_training(failed):
    outcomes, _ = failed
    assert len(outcomes) > 100
    assert {name: said for name, said in outcomes.items() if said != "fine"} == {}


def test_a_hook_that_failed_is_in_the_evidence(failed):
    _, session = failed
    notes = [note for note in session.notes if note.code == "hook-off"]
    assert len({note.text for note in notes}) > 10
    assert all("this function of the probe fails" in note.text for note in notes)
