"""How a command runs for a proof: unseen, without input, with variables of its own, and no longer than it may."""

from __future__ import annotations

from pathlib import Path

import pytest
from attach_runs import begin_session, python

from headrace.doctor.attach.command import CommandResult
from headrace.doctor.prove.trial import execute, variables

SAYS = """
import os, sys
print("read", repr(sys.stdin.read()), os.environ.get("HEADRACE_CACHE_ONLY"))
print("broken", file=sys.stderr)
sys.exit(3)
"""
HANGS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
time.sleep(600)
"""


def executed(source: str, folder: Path, changes: dict[str, dict[str, int]], most_s: float = 60.0) -> CommandResult:
    return execute(python(source), begin_session(folder), variables(changes), most_s)


def test_its_output_is_kept_and_not_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ended = executed(SAYS, tmp_path, {"loader": {}})
    assert (ended.status, ended.why) == (3, "failed")
    assert sorted(ended.last_lines) == ["broken", "read '' 1"]
    assert capfd.readouterr() == ("", "")


def test_one_that_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    ended = executed(HANGS, tmp_path, {}, most_s=0.5)
    assert (ended.status, ended.why) == (137, "timed out")
    assert not ended.leftovers
