"""Runs that are cut short: by Ctrl-C, or because the doctor itself is killed, and what puts the files back then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import DEADLINE_S, eventually, source_paths
from undone_runs import Runs, settings, working_in

from headrace.doctor.attach.hands_off import Notes, begin_record, restore_session, undo_run, unfinished_sessions
from headrace.doctor.attach.injection import SITE_FOLDER
from headrace.doctor.probe import UNDO
from headrace.errors import UsageError
from headrace.tools.bench.runs import tree as processes_of

CHANGING = """
import os, shutil, signal
open('notes.txt', 'w').write('x')
open('train.log', 'a').write('y')
os.replace('last.ckpt', 'best.ckpt')
shutil.rmtree('runs')
os.makedirs('runs/new')
open('runs/new/n', 'w').write('z')
f = open('table.bin', 'r+b'); f.write(b'other'); f.flush()
print('changed', os.getpid(), flush=True)
signal.pause()
"""
DOCTOR = "import sys; from headrace.tools.command_line import main; sys.argv[0] = 'headrace'; main()"


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    (tmp_path / "tmp").mkdir()
    return Runs(tmp_path)


@contextmanager
def doctor(runs: Runs, *command: str) -> Iterator[subprocess.Popen[str]]:
    """In the project, its session in a folder of temporary ones beside it. Whatever a test does, nothing is left."""
    paths = os.pathsep.join(source_paths())
    process = subprocess.Popen(
        [sys.executable, "-c", DOCTOR, "doctor", *command],
        cwd=runs.root,
        env=os.environ | {"PYTHONPATH": paths, "TMPDIR": str(runs.root.parent / "tmp"), "TERM": "dumb"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in processes_of(process.pid) if process.poll() is None else []:
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def changed(process: subprocess.Popen[str], runs: Runs) -> int:
    """Waits until the command has changed the project, and gives its pid."""
    assert process.stdout is not None
    pid = next(int(line.split()[1]) for line in process.stdout if line.startswith("changed"))
    assert runs.now != runs.before
    return pid


def failures(notes: Notes) -> list[str]:
    return [text for code, text in notes if code == "not-put-back"]


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def killed(runs: Runs) -> Path:
    """A doctor is killed in the middle of a run, then the run as well: the folder of its session."""
    with doctor(runs, "--", sys.executable, "-c", CHANGING) as process:
        command = changed(process, runs)
        process.kill()
        process.wait(DEADLINE_S)
        os.kill(command, signal.SIGKILL)
    eventually(lambda: is_gone(command))
    (session,) = (runs.root.parent / "tmp").iterdir()
    assert runs.now != runs.before
    return session


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("signum", "to_doctor", "status"), [(signal.SIGINT, True, 130), (signal.SIGKILL, False, 137)])
@pytest.mark.long
def test_a_run_that_is_cut_short_has_its_files_put_back(signum: int, to_doctor: bool, status: int, runs: Runs) -> None:
    with doctor(runs, "--", sys.executable, "-c", CHANGING) as process:
        command = changed(process, runs)
        os.kill(process.pid if to_doctor else command, signum)
        out, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == status
    assert "best.ckpt, last.ckpt, notes.txt" in out.partition("put-back: ")[2]
    assert runs.now == runs.before


def test_a_session_with_files_that_are_nowhere_else_stays(runs: Runs) -> None:
    source = "import os; os.mkdir('a'); os.system('echo x > a/b')"
    with doctor(runs, "--", sys.executable, "-c", source) as process:
        _, error = process.communicate(timeout=DEADLINE_S)
    (session,) = (runs.root.parent / "tmp").iterdir()
    assert f" {session}" in error
    assert (session / "written" / "a" / "b").read_text() == "x\n"
    assert runs.now == runs.before


@pytest.mark.long
def test_the_next_doctor_puts_back_what_a_killed_one_could_not(runs: Runs) -> None:
    session = killed(runs)
    with doctor(runs, "--", "true") as process:
        _, error = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    assert f": {session}" in error
    assert "restored: best.ckpt" in error
    assert runs.now == runs.before
    assert (session / "written" / "runs" / "new" / "n").read_text() == "z"


@pytest.mark.long
def test_a_user_puts_back_what_a_killed_doctor_could_not(runs: Runs) -> None:
    session = killed(runs)
    with doctor(runs, "restore", str(session)) as process:
        _, error = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, runs.now) == (0, runs.before)
    assert f"moved to {session}/written: runs/new/n" in error
    with doctor(runs, "restore", str(session)) as process:
        _, error = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 125
    assert f"got {session}" in error


@pytest.mark.long
def test_nothing_is_put_back_while_the_command_goes_on(runs: Runs) -> None:
    with doctor(runs, "--", sys.executable, "-c", CHANGING) as process:
        command = changed(process, runs)
        (session,) = (runs.root.parent / "tmp").iterdir()
        with pytest.raises(UsageError, match="where a doctor runs that will restore its files"):
            restore_session(session)
        process.kill()
        process.wait(DEADLINE_S)
        with pytest.raises(UsageError, match=rf"of which process {command} still runs; end it first"):
            restore_session(session)
        os.kill(command, signal.SIGKILL)
    eventually(lambda: is_gone(command))
    assert "not-put-back" not in dict(restore_session(session))
    assert runs.now == runs.before


@pytest.mark.long
def test_a_session_of_another_user_or_folder_is_not_believed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    session = killed(runs)
    monkeypatch.setattr("tempfile.tempdir", str(session.parent))
    assert unfinished_sessions(str(runs.root)) == [session]
    assert unfinished_sessions(str(runs.root / "runs")) == []
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    assert unfinished_sessions(str(runs.root)) == []


KILLED_AT = """
import os, signal, sys
at = iter(range(int(sys.argv[1])))
def count(event, arguments):
    changing = event.startswith('os.') or event == 'open' and arguments[2] & 3
    if changing and event != 'os.kill' and next(at, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
"""
"""Is killed before it changes something for the nth time, the changes of the probe included."""


def recorded(runs: Runs, source: str, *arguments: str) -> int:
    """Runs Python source in the project as a measured run has it, and gives its exit status; nothing is undone."""
    settings(runs.session)
    with working_in(runs.root):
        begin_record(str(runs.session), str(runs.root))
        environment = os.environ | {"HEADRACE_DOCTOR": str(runs.session), "PYTHONPATH": str(SITE_FOLDER)}
        command = [sys.executable, "-c", source.replace("signal.pause()", "os._exit(0)"), *arguments]
        return subprocess.run(command, env=environment, check=False, capture_output=True).returncode


@pytest.mark.one_in(4)
@pytest.mark.parametrize("after", [pytest.param(n, marks=pytest.mark.long) if n % 6 else n for n in range(48)])
def test_a_run_that_is_killed_at_any_moment_leaves_no_trace(after: int, runs: Runs) -> None:
    status = recorded(runs, KILLED_AT + CHANGING, str(after))
    assert status in ((-signal.SIGKILL,) if after < 40 else (-signal.SIGKILL, 0))
    assert failures(undo_run(str(runs.session), keep=False)) == []
    assert runs.now == runs.before


@pytest.mark.one_in(12)
@pytest.mark.parametrize("after", [pytest.param(n, marks=pytest.mark.long) if n % 4 else n for n in range(24)])
def test_putting_back_goes_on_where_it_was_killed(after: int, runs: Runs) -> None:
    recorded(runs, CHANGING)
    assert runs.now != runs.before
    if (child := os.fork()) == 0:
        sys.argv[1:] = [str(after)]
        exec(KILLED_AT, {})
        undo_run(str(runs.session), keep=False)
        os._exit(0)
    os.waitpid(child, 0)
    if (runs.session / UNDO).exists():
        assert failures(undo_run(str(runs.session), keep=False)) == []
    assert runs.now == runs.before
