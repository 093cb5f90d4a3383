"""DataLoader's own tests, of PyTorch and of torchdata, with ThreadDataLoader in its place.

Their text is not here: HEADRACE_DATALOADER_TESTS names a folder that holds it, such as test/stateful_dataloader of
torchdata's repository, whose test_dataloader.py is PyTorch's. What each test gives is kept in dataloader_suite.json:
"passed", "skipped" here, or the difference for which it fails, each a row of docs/drop-ins/thread-loader.md.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import dataloader_suite
import pytest
from processes import source_paths

HERE = Path(__file__).parents[1]
VARIABLE = "HEADRACE_DATALOADER_TESTS"
SUITE = json.loads((HERE / "dataloader_suite.json").read_text())
NEEDED = ("expecttest", "parameterized", "torchdata")


def failing(file):
    return {test: outcome for test, outcome in SUITE["files"][file].items() if outcome not in ("passed", "skipped")}


def test_every_difference_has_a_row_in_the_docs():
    page = (HERE.parent / "docs/drop-ins/thread-loader.md").read_text()
    named = {difference for file in SUITE["files"] for difference in failing(file).values()}
    assert named == {*SUITE["differences"], *SUITE["not ours"]}
    for difference, row in SUITE["differences"].items():
        assert page.count(f"\n{row}") == 1, f"{difference}: no row that begins with {row!r}"


def test_what_the_docs_count():
    page = " ".join((HERE.parent / "docs/drop-ins/thread-loader.md").read_text().split())
    for file, of in (("test_dataloader.py", "PyTorch's"), ("test_state_dict.py", "torchdata's")):
        run = [outcome for outcome in SUITE["files"][file].values() if outcome != "skipped"]
        assert f"{run.count('passed')} of {len(run)} of {of}" in page


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", SUITE["files"])
def test_outcomes_are_those_that_are_kept(file, tmp_path):
    path = Path(os.environ.get(VARIABLE, "")) / file
    if not os.environ.get(VARIABLE) or not path.is_file():
        pytest.skip(f"{VARIABLE} names no folder with {file} in it")
    for package in NEEDED:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"the tests of {file} need {package}")
    out = tmp_path / "outcomes.json"
    ran = subprocess.run(
        [sys.executable, dataloader_suite.__file__, path, out],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())},
        capture_output=True,
        text=True,
        timeout=1100,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    found = json.loads(out.read_text())
    expected = failing(file)
    failed = {test: said for test, said in found.items() if said not in ("passed", "skipped")}
    assert {test: said for test, said in failed.items() if test not in expected} == {}, "give each a row, or mend"
    passed = sorted(test for test in expected if found.get(test) == "passed")
    assert passed == [], "these pass now: take them off the list"
    assert len(found) > len(SUITE["files"][file]) // 2, "another version's file"
