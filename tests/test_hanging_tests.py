"""What the tests' own configuration makes of files, of a test that hangs, and of signals ignored at the start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import LimitedProcess, end_processes, started

TESTS = Path(__file__).parent
PROGRAM = """
import signal, subprocess, sys
with subprocess.Popen([sys.executable, "-c", "import time; print(1, flush=True); time.sleep(99)"], stdout=-1) as child:
    child.stdout.readline()
    child.send_signal(signal.SIGINT)
    sys.exit(child.wait(30) != -signal.SIGINT)
"""


def run_tests(folder: Path, text: str, *options: str, **options_of_run: object) -> tuple[int, str]:
    (folder / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-c", TESTS.parent / "pyproject.toml", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    environment.pop("PYTEST_XDIST_WORKER", None)
    command += [f"--rootdir={folder}", *options, folder]
    with open(folder / "shown", "w") as shown:  # no pipe, which orphans of a process that hung would hold open
        ran = subprocess.run(command, cwd=folder, env=environment, stdout=shown, **options_of_run)
    return ran.returncode, (folder / "shown").read_text()


@pytest.mark.long
def test_children_can_be_interrupted_where_signals_were_ignored(tmp_path: Path) -> None:
    text = f"""
import subprocess, sys

def test_it():
    assert subprocess.run([sys.executable, '-c', {PROGRAM!r}]).returncode == 0
"""

    def ignore() -> None:
        for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(signum, signal.SIG_IGN)

    status, shown = run_tests(tmp_path, text, preexec_fn=ignore)
    assert status == 0, shown


@pytest.mark.long
@pytest.mark.parametrize(
    "hangs",
    [
        pytest.param("if os.fork() == 0: time.sleep(80)\n    time.sleep(80)", id="with a fork"),
        pytest.param("with subprocess.Popen(['sleep', '80']): pass", id="in a wait"),
    ],
)
def test_a_test_that_hangs_ends_the_run(tmp_path: Path, hangs: str) -> None:
    text = f"import os, subprocess, time\n\ndef test_hangs():\n    {hangs}\n"
    options = ["-n1", "--max-worker-restart=0", "--whole-files", "-o", "timeout=2"]
    status, shown = run_tests(tmp_path, text, *options, timeout=60)
    assert status == 1
    assert "FAILED test_it.py::test_hangs" in shown


@pytest.mark.long
def test_files_that_workers_collect_one_by_one_have_the_results_of_all_at_once(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.fixture(scope="module")
def numbers():
    yield [1]
    print("torn down once")

@pytest.mark.parametrize("number", [1, 2])
def test_it(numbers, number):
    assert number in numbers

@pytest.mark.long
def test_that_is_long():
    raise AssertionError
"""
    (tmp_path / "test_broken.py").write_text("import no_such_module\n")
    for name, is_long in (("one/test_first.py", False), ("one/test_long.py", True), ("other/test_last.py", False)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        mark = "@pytest.mark.long\n" * is_long
        (tmp_path / name).write_text(f"import pytest\n\n{mark}def test_it():\n    pass\n")
    status, shown = run_tests(tmp_path, text, "-n1", "--whole-files", "-m", "not long", timeout=60)
    assert status == 1
    assert "1 failed, 3 passed, 1 error" in shown
    assert shown.count("torn down once") == 1
    assert "FAILED test_it.py::test_it[2] - assert 2 in [1]" in shown
    assert "ERROR test_broken.py" in shown
    assert "No module named 'no_such_module'" in shown


def test_a_wait_without_a_limit_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("processes.LIMIT_S", 0.0)
    process = subprocess.Popen(["sleep", "1000"])
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait()
    monkeypatch.undo()
    assert process.wait() == -signal.SIGKILL


def test_what_a_test_leaves_running_is_killed() -> None:
    process = subprocess.Popen(["sleep", "1000"])
    assert isinstance(process, LimitedProcess)
    assert process in started
    end_processes([process])
    assert process.returncode == -signal.SIGKILL
