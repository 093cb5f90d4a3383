"""What ends a doctor in the middle of a proof leaves no process, no copy and no evidence behind."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from observed_runs import CASES
from processes import DEADLINE_S, eventually, source_paths

from headrace.tools.bench.runs import tree

HANGS_S = 120
"""Within which the script hangs, on a machine that others use, too."""
HANGS = """
import sys, time
with open(sys.argv[-1], "w") as pipe:
    pipe.write("hanging")
time.sleep(600)
"""
DOCTOR = """
import sys
from headrace.doctor.probe.settings import boot_id
from headrace.doctor.probe.settings import ProbeSettings as Settings
from headrace.doctor.prove.trial import TrialRequest as Order, attempt

script, tar, copy, pipe = sys.argv[1:]
changes = {"loaders": {"0": {"num_workers": 2}}, "staging": [[tar, copy]]}
command = [sys.executable, script, tar, "--hang", pipe]
trial = attempt(command, Settings("", 0, 0, boot_id()), Order(changes, 20, 3, 600.0))
print(trial.why)
"""


@contextlib.contextmanager
def proving(tar: Path, folder: Path, temporary: Path, script: Path) -> Iterator[subprocess.Popen[str]]:
    """A doctor in a session of its own, whose proof has come to where the script hangs."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    environment = {"PYTHONPATH": os.pathsep.join(source_paths()), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    arguments = [str(script), str(tar), str(folder / "staged" / "x.tar"), str(pipe)]
    process = subprocess.Popen(
        [sys.executable, "-c", DOCTOR, *arguments],
        env=os.environ | environment,
        text=True,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
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


def staged(folder: Path) -> list[Path]:
    return list(folder.glob("headrace-*"))


def test_ctrl_c_ends_all(photo_tar: Path, tmp_path: Path, temporary: Path) -> None:
    """A training with two workers among them."""
    with proving(photo_tar, tmp_path, temporary, CASES / "proved.py") as process:
        processes = tree(process.pid)
        assert staged(tmp_path)
        os.kill(process.pid, signal.SIGINT)
        out, _ = process.communicate(timeout=3 * DEADLINE_S)
        assert out == "interrupted\n"
        assert process.returncode == 0
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]
    assert not staged(tmp_path)
    assert not list(temporary.glob("headrace-doctor-*"))


def test_a_doctor_that_is_killed_leaves_no_copy(photo_tar: Path, tmp_path: Path, temporary: Path) -> None:
    script = tmp_path / "hangs.py"
    script.write_text(HANGS)
    with proving(photo_tar, tmp_path, temporary, script) as process:
        processes = tree(process.pid)
        assert staged(tmp_path)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        assert eventually(lambda: not staged(tmp_path))
        for pid in processes:  # the command goes on by itself, as it would after its first steps
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
