"""A corpus of damaged files (damaged_corpus.py): each gives a named error or what is right, in bounded memory and time.

The seeded cut here is the first part of what the long test takes whole. The limit of 2 s a file is not asserted, since
machines that run tests are shared: the program prints the slowest, and what takes a minute hangs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from processes import source_paths

MOST_MB = 256
"""Of the whole process, interpreter and libraries included."""
COUNTS = {"jpeg": 3000, "png": 3000, "tar": 500}
PROGRAM = Path(__file__).with_name("damaged_corpus.py")

each_kind = pytest.mark.parametrize("kind", COUNTS)


def holds(kind: str, count: int) -> dict[str, int]:
    """Takes `count` cases in a process of its own, whose peak of memory is theirs. Returns the outcomes by name."""
    done = subprocess.run(
        [sys.executable, PROGRAM, kind, str(count)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(source_paths())},
        timeout=3600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["wrong"] == []
    assert report["peak_mb"] <= MOST_MB
    assert sum(report["outcomes"].values()) == count
    return report["outcomes"]


@each_kind
@pytest.mark.one_in(4)
def test_damaged_files(kind: str) -> None:
    outcomes = holds(kind, COUNTS[kind] // 40)
    assert len(outcomes) > 1  # not everything is refused


@pytest.mark.long
@pytest.mark.timeout(3600)
@each_kind
def test_the_whole_corpus_of_damaged_files(kind: str) -> None:
    holds(kind, COUNTS[kind])
