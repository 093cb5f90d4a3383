"""How a command runs for a proof, and that what ends it or its doctor leaves no process, no copy and no evidence."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attach_runs import begin_session, python
from observed_runs import CASES
from processes import DEADLINE_S, source_paths

from headrace.doctor.attach.command import CommandResult
from headrace.doctor.prove.trial import execute, variables
from headrace.tools.bench.runs import tree

HANGS_S = 120
"""Within which the script hangs, on a machine that others use, too."""
DOCTOR = """
import sys
from headrace.doctor.probe.settings import boot_id
from headrace.doctor.probe.settings import ProbeSettings as Settings
from headrace.doctor.prove.trial import TrialRequest as Order, attempt

script, tar, pipe = sys.argv[1:]
changes = {"loaders": {"0": {"num_workers": 2}}}
command = [sys.executable, script, tar, "--hang", pipe]
trial = attempt(command, Settings("", 0, 0, boot_id()), Order(changes, 20, 600.0))
print(trial.why)
"""


@contextlib.contextmanager
def proving(tar: Path, folder: Path, temporary: Path, script: Path) -> Iterator[subprocess.Popen[str]]:
    """A doctor in a session of its own, whose proof has come to where the script hangs."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    environment = {"PYTHONPATH": os.pathsep.join(source_paths()), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    arguments = [str(script), str(tar), str(pipe)]
    command, how = [sys.executable, "-c", DOCTOR, *arguments], {"stdout": subprocess.PIPE, "start_new_session": True}
    process = subprocess.Popen(command, env=os.environ | environment, text=True, **how)
    try:
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        with open(reader) as hangs:
            assert select.select([hangs], [], [], HANGS_S)[0]  # the script has come to where it hangs
        yield process
    finally:
        for pid in tree(process.pid) if process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_ctrl_c_ends_all(photo_tar: Path, tmp_path: Path, temporary: Path) -> None:
    """A training with two workers among them."""
    with proving(photo_tar, tmp_path, temporary, CASES / "proved.py") as process:
        processes = tree(process.pid)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=3 * DEADLINE_S)
        assert out == "interrupted\n"
        assert process.returncode == 0
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    assert not list(temporary.glob("headrace-doctor-*"))


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
