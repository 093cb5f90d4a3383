"""Commands that do what is hard on whoever watches them: their own status, no orphan, and what they left is there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from attach_runs import doctor, evidence, observed, records, stub_torch
from processes import eventually, source_paths

NAMESPACE = ["unshare", *([] if os.geteuid() == 0 else ["-r"]), "-m"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    return stub_torch(tmp_path_factory.mktemp("site"))


@pytest.fixture
def script(site, monkeypatch, tmp_path):
    """Makes the command that runs a script of this source, where `import torch` works."""
    monkeypatch.setenv("PYTHONPATH", str(site))

    def make(source: str) -> list[str]:
        path = tmp_path / "train.py"
        path.write_text(f"import os, sys, torch\n{source}\n")
        return [sys.executable, str(path)]

    return make


def kinds(process: list[list[object]]) -> list[object]:
    return [record[0] for record in process]


@pytest.mark.parametrize(("source", "status"), [("os._exit(3)", 3), ("os.kill(os.getpid(), 9)", 137)])
def test_one_that_leaves_without_a_word_or_is_killed_has_no_end(source, status, script, tmp_path):
    assert observed(script(source), tmp_path).status == status
    (process,) = evidence(tmp_path).values()
    assert {"process", "torch"} <= set(kinds(process))
    assert "end" not in kinds(process)


def test_one_that_becomes_another_program_is_followed(script, tmp_path):
    again = "if sys.argv[1:] == ['again']: sys.exit(4)\nos.execv(sys.executable, [sys.executable, __file__, 'again'])"
    assert observed(script(again), tmp_path).status == 4
    files = sorted((tmp_path / "evidence").iterdir())
    assert len(files) == 2
    files = sorted(files, key=lambda file: file.stat().st_mtime_ns)
    assert ["end" in file.read_text() for file in files] == [False, True]


def test_workers_of_one_that_began_a_session_belong_to_it(script, tmp_path):
    """They share its session: that they are in none of ours does not make them detached."""
    child = "if os.fork() == 0: os.execvp('sleep', ['sleep', '1000'])"
    ended = observed(script(f"os.setsid()\n{child}\nos._exit(5)"), tmp_path)
    assert ended.status == 5
    assert [leftover.fate for leftover in ended.leftovers] == ["terminated"]


def test_forks_of_its_own_write_nothing_into_its_file(script, tmp_path):
    source = """
probe = sys.modules["_headrace_probe"]._active
for way in ("exit", "_exit", "error"):
    if os.fork() == 0:
        probe.note("forked", way)
        {"exit": sys.exit, "_exit": os._exit, "error": int}[way]("x" if way == "error" else 0)
    os.wait()
probe.note("forked", "parent")
"""
    assert observed(script(source), tmp_path).status == 0
    by_note = {
        note: [kind for kind in kinds(process) if kind != "name"]
        for process in evidence(tmp_path).values()
        for note in [record[3] for record in process if record[0] == "note" and record[2] == "forked"]
    }
    assert set(by_note) == {"exit", "_exit", "error", "parent"}
    assert by_note["_exit"] == ["process", "note"]
    assert "error" not in by_note["exit"]
    assert "error" in by_note["error"]
    assert by_note["parent"].count("process") == 1


@pytest.mark.one_in(2)
@pytest.mark.parametrize("replaced", [False, True], ids=["ours", "the user's hook"])
def test_an_error_is_kept_whoever_shows_it(replaced, script, tmp_path, capfd):
    hook = "sys.excepthook = lambda *_: print('mine')\n" if replaced else ""
    assert observed(script(f"{hook}raise RuntimeError('unlucky')"), tmp_path).status == 1
    ((_, _, text),) = records(tmp_path, "error")
    assert text.splitlines()[-1] == "RuntimeError: unlucky"
    out, error = capfd.readouterr()
    assert out == ("mine\n" if replaced else "")
    assert "headrace" not in error
    assert (error == "") == replaced


def test_an_error_in_a_thread_ends_nothing(script, tmp_path, capfd):
    source = "import threading\nthread = threading.Thread(target=lambda: 1 / 0)\nthread.start(); thread.join()"
    assert observed(script(source), tmp_path).status == 0
    assert records(tmp_path, "error") == []
    assert "Thread-1" in capfd.readouterr().err


def test_an_error_text_is_bounded(script, tmp_path, capfd):
    source = """
def deep(n):
    if n == 0:
        raise ValueError("x" * 100_000)
    try:
        deep(n - 1)
    except ValueError as error:
        raise ValueError(n) from error

deep(100)
"""
    observed(script(source), tmp_path)
    ((_, _, text),) = records(tmp_path, "error")
    assert len(text) <= 16_000
    assert len(text.splitlines()) == 50
    assert text.endswith("ValueError: 100")


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.one_in(4)
def test_children_of_multiprocessing_say_how_they_end(method, script, tmp_path):
    source = f"""
import multiprocessing

def child(fail):
    sys.modules["_headrace_probe"]._active.note("in-child", str(fail))
    if fail:
        raise RuntimeError("child")

if __name__ == "__main__":
    for fail in (False, True):
        process = multiprocessing.get_context({method!r}).Process(target=child, args=(fail,))
        process.start()
        process.join()
        print(process.exitcode)
"""
    ended = observed(script(source), tmp_path, hides=True)
    assert (ended.status, [line for line in ended.last_lines if line in "01"]) == (0, ["0", "1"])
    noted = [(record, one) for one in evidence(tmp_path).values() for record in one if record[:1] == ["note"]]
    children = {record[3]: one for record, one in noted if record[2] == "in-child"}
    assert [record[2] for record in children["False"] if record[0] in ("error", "end")] == ["exit"]
    error, end = (record[2] for record in children["True"] if record[0] in ("error", "end"))
    assert error.splitlines()[-1] == "RuntimeError: child"
    assert end == "exit"


def test_evidence_that_is_removed_meanwhile_ends_the_evidence_only(script, tmp_path, capfd):
    source = """
import shutil
shutil.rmtree(os.environ["HEADRACE_DOCTOR"])
if os.fork() == 0:
    sys.exit(2)
print(os.wait()[1])
"""
    folder = tmp_path / "session"
    assert observed(script(source), folder).status == 0
    out, error = capfd.readouterr()
    assert out == "512\n"
    assert "Traceback" not in error


def test_a_doctor_that_is_killed_leaves_an_observed_command_alone(script, tmp_path):
    command = script(f"sys.stdin.readline(); open({str(tmp_path / 'done')!r}, 'w').close()")
    with doctor(command, tmp_path, stdin=subprocess.PIPE) as process:
        assert eventually(lambda: len(list((tmp_path / "evidence").glob("*.jsonl"))) == 1)
        process.kill()
        process.wait()
        process.stdin.close()
        assert eventually((tmp_path / "done").exists)


FULL = """
import os, sys, torch
probe = sys.modules["_headrace_probe"]._active
for number in range(2000):
    probe.note("filler", "x" * 1000)
print("done")
sys.exit(3)
"""


@pytest.mark.long
def test_a_full_disk_ends_the_evidence_only(site, tmp_path):
    """A small file system of its own, in a mount namespace."""
    mount = f'mount -t tmpfs -o size=1m tmpfs "{tmp_path}"'
    if subprocess.run([*NAMESPACE, "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a file system of their own (unshare -m)")
    source = (
        "import sys; from pathlib import Path; from attach_runs import observed; "
        f"ended = observed(['{sys.executable}', '-c', sys.argv[1]], Path('{tmp_path}')); "
        f"print(max(f.stat().st_size for f in Path('{tmp_path}/evidence').iterdir()), ended.status)"
    )
    paths = [*source_paths(), str(Path(__file__).parents[1]), str(site)]
    call = [*NAMESPACE, "sh", "-c", f'{mount} && exec "$@"', "sh", sys.executable, "-c", source, FULL]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    first, last = done.stdout.splitlines()
    size, status = map(int, last.split())
    assert (first, status) == ("done", 3)
    assert 900_000 < size <= 1 << 20
    assert done.stderr.count("no longer observed") == 1
    assert "Traceback" not in done.stderr


def test_no_signal_is_lost_in_a_fork(script, tmp_path):
    """What a handler raises, as Ctrl-C's does, comes out wherever the process is."""
    source = """
import random, signal
raised = caught = 0

def strike(*_):
    global raised
    raised += 1
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, strike)
draw = random.Random(1)
for number in range(300):
    try:
        signal.setitimer(signal.ITIMER_REAL, draw.uniform(0.00005, 0.003))
        while raised == number:
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
    except KeyboardInterrupt:
        caught += 1
print(raised, caught)
"""
    assert observed(script(source), tmp_path, hides=True).last_lines == ["300 300"]
