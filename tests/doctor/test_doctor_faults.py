"""Scripts with planted faults: the doctor's top cause is what was planted, and healthy ones are called healthy.

pytest -m long -s tests/doctor/test_doctor_faults.py      prints what it says of each
"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from fault_suite import Case, cases, examine
from observed_runs import FEW_STEPS

pytestmark = pytest.mark.alone

CASES = cases()
QUICK = [one for one in CASES if one.name in ("fault_collate", "fault_few_workers", "fault_padding", "fault_respawn")]
"""Those that need no data and are soon done."""
CROWDED = 0.25
"""Share of the cores used by other programs from which a script's rates are not those that were planted."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("planted")


def check(case: Case, folder: Path, data: Path, replay_steps: int | None = None) -> None:
    examined = examine(case, folder, data=data, replay_steps=replay_steps)
    print(examined.summary())
    if examined.misses() and examined.others_cores > CROWDED:
        pytest.skip(f"other programs keep {examined.others_cores:.0%} of the cores busy; it says {examined.misses()}")
    assert examined.misses() == []


def test_faults_are_planted_as_the_issue_has_them() -> None:
    assert len(CASES) >= 20
    assert sum(len(case.expected) == 2 or case.name.startswith("close") for case in CASES) >= 6
    assert sum(not case.expected for case in CASES) >= 2


@pytest.mark.parametrize("case", random.Random(5).sample(QUICK, 1), ids=lambda case: case.name)
def test_the_top_cause_is_what_was_planted(case: Case, tmp_path: Path, data: Path) -> None:
    check(replace(case, steps=40), tmp_path, data, replay_steps=FEW_STEPS)


@pytest.mark.long
@pytest.mark.timeout(300)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_top_cause_of_all_is_what_was_planted(case: Case, tmp_path: Path, data: Path) -> None:
    check(case, tmp_path, data)
