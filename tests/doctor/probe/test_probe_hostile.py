"""A probe that fails in any of its functions: the training goes on and comes to the same, and the evidence says so."""

from __future__ import annotations

import json

import pytest
from observed_runs import python
from probed import merged, run_probed

DRAWN = 12


def failed(folder, *count):
    """What came of the training by the function that failed, and the hooks that were noted to be off."""
    ran = run_probed(python("failing_probe.py", *count), folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout), [note for note in merged(folder).notes if note.code == "hook-off"]


def check(outcomes, notes):
    assert {name: said for name, said in outcomes.items() if said != "fine"} == {}
    assert len(notes) > len(outcomes) / 10  # not every function is called by this training, but some are
    assert all("this function of the probe fails" in note.text for note in notes)


@pytest.mark.long
def test_no_failure_of_the_probe_changes_the_training(tmp_path):
    check(*failed(tmp_path, DRAWN))


@pytest.mark.long
@pytest.mark.timeout(600)
def test_no_failure_of_any_function_of_the_probe_changes_the_training(tmp_path):
    outcomes, notes = failed(tmp_path)
    assert len(outcomes) > 300
    check(outcomes, notes)
