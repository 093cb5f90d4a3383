"""A command that the doctor runs: its status, its output, where it does not start, and its processes to the end."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from attach_runs import observed, python
from processes import eventually

from headrace.doctor.attach import process_tree
from headrace.doctor.attach.command import LINES
from headrace.doctor.attach.process_tree import Descendants, Patience, adopting_orphans
from headrace.doctor.probe.look.value_look import HANGS, LOOK_FILE


@pytest.fixture
def fifo(tmp_path):
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def test_workers_that_end_by_themselves_are_waited_for(tmp_path):
    """As a DataLoader's do, which look for their parent every now and then."""
    source = """
        import os
        parent = os.getpid()
        if os.fork():
            os._exit(3)
        while os.getppid() == parent:
            os.sched_yield()
    """
    ended = observed(python(source), tmp_path, patience=Patience())
    assert (ended.status, ended.leftovers) == (3, [])


@pytest.mark.parametrize(
    ("source", "fate"), [("sleep 1000", "terminated"), ("trap '' TERM; while :; do sleep 0.05; done", "killed")]
)
def test_what_the_command_leaves_running_is_ended_and_named(source, fate, tmp_path):
    patience = Patience(grace_s=0.05, terminate_s=0.5)
    ended = observed(["sh", "-c", 'sh -c "$0" & exit 0', source], tmp_path, patience=patience)
    assert ended.status == 0
    assert {leftover.fate for leftover in ended.leftovers} <= {fate, "terminated"}
    assert fate in {leftover.fate for leftover in ended.leftovers}
    assert all(process_tree.process_stat(leftover.pid) is None for leftover in ended.leftovers)


@pytest.mark.parametrize("detach", ["setsid", "nohup"])
@pytest.mark.parametrize("orphan", [False, True], ids=["child", "grandchild"])
def test_what_has_detached_itself_is_left_alone_and_named(detach, orphan, fifo, tmp_path):
    start = f"{detach} sh -c 'echo $$ > {fifo}; exec sleep 1000' > /dev/null 2>&1 & read pid < {fifo}; echo $pid"
    script = ["sh", "-c", '"$@"; exit 0', "sh", "sh", "-c", start] if orphan else ["sh", "-c", start]
    ended = observed(script, tmp_path, hides=True)
    try:
        assert [(str(leftover.pid), leftover.fate) for leftover in ended.leftovers] == [(ended.last_lines[0], "left")]
        assert process_tree.process_stat(ended.leftovers[0].pid) is not None
    finally:
        for leftover in ended.leftovers:
            os.kill(leftover.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(leftover.pid, 0)


def test_nothing_detached_keeps_the_doctor_waiting_for_output(fifo, tmp_path):
    """It holds the file open, and would for ever."""
    start = f"setsid sh -c 'echo early; echo > {fifo}; exec sleep 1000' & read _ < {fifo}"
    ended = observed(["sh", "-c", start], tmp_path, hides=True)
    os.kill(ended.leftovers[0].pid, signal.SIGKILL)
    os.waitpid(ended.leftovers[0].pid, 0)
    assert ended.last_lines == ["early"]


def test_one_whose_parent_ends_during_a_look_is_seen_by_the_next(monkeypatch):
    """Its parent was read before that end, and the parent itself after it."""
    with adopting_orphans():
        descendants = Descendants()
        command = subprocess.Popen(["sh", "-c", "sleep 1000 & echo $!"], process_group=0, stdout=subprocess.PIPE)
        assert command.stdout is not None
        orphan = int(command.stdout.readline())
        assert eventually(lambda: process_tree.process_stat(orphan).parent == os.getpid())
        with monkeypatch.context() as earlier:
            stat = process_tree.process_stat
            changed = {orphan: {"parent": command.pid}}
            earlier.setattr(process_tree, "process_stat", lambda pid: replace(stat(pid), **changed.get(pid, {})))
            descendants.started(command.pid)
        assert descendants.live == {}
        descendants.look()
        assert set(descendants.live) == {orphan}
        descendants.signal_all(signal.SIGKILL)
        assert eventually(lambda: [descendants.look(), descendants.live] == [None, {}])
        assert process_tree.process_stat(orphan) is None
        command.wait()
        command.stdout.close()


def test_children_of_the_doctor_itself_are_none_of_the_commands():
    others = [subprocess.Popen(["sleep", "1000"], **group) for group in ({}, {"process_group": 0})]
    descendants = Descendants()
    command = subprocess.Popen(["sleep", "1000"], process_group=0)
    others.append(subprocess.Popen(["sleep", "1000"]))
    descendants.started(command.pid)
    assert set(descendants.live) == {command.pid}
    for process in (*others, command):
        process.kill()
        process.wait()


def test_a_job_that_was_there_before_the_command_goes_on(tmp_path):
    """As in a script under job control: in a group of its own, and what it starts meanwhile becomes an orphan here."""
    job = subprocess.Popen(
        ["sh", "-c", "read _; sleep 1000 & echo $!"], process_group=0, stdin=-1, stdout=-1, text=True
    )
    other = subprocess.Popen(["sleep", "1000"], process_group=0)
    fifo, told = tmp_path / "fifo", []

    def start_orphan(_):
        job.stdin.write("\n")
        job.stdin.flush()
        told.append(int(job.stdout.readline()))
        assert eventually(lambda: process_tree.process_stat(told[0]).parent == os.getpid())
        fifo.write_text("go on")

    os.mkfifo(fifo)
    ended = observed(["sh", "-c", f"read _ < {fifo}"], tmp_path, on_start=start_orphan)
    assert ended.leftovers == []
    assert other.poll() is None
    os.kill(told[0], signal.SIGKILL)  # still ours alone to end
    other.kill()
    assert (job.wait(), other.wait()) == (0, -signal.SIGKILL)
    os.waitpid(told[0], 0)
    job.stdin.close()
    job.stdout.close()


def test_a_pid_that_is_another_process_by_now_is_not_signalled():
    descendants = Descendants()
    command = subprocess.Popen(["sleep", "1000"], process_group=0)
    descendants.started(command.pid)
    (then,) = descendants.live.values()
    descendants.live = {then.pid: replace(then, started_s=then.started_s - 1)}
    descendants.signal([command.pid], signal.SIGKILL)
    assert command.poll() is None
    command.kill()
    command.wait()


@pytest.mark.parametrize("hides", [True, False], ids=["hidden", "shown"])
@pytest.mark.parametrize(
    ("script", "status", "why"),
    [
        ("exit 0", 0, "finished"),
        ("exit 3", 3, "failed"),
        ("kill -9 $$", 128 + signal.SIGKILL, "failed"),
        ("kill -INT $$", 128 + signal.SIGINT, "interrupted"),
    ],
)
def test_the_status_is_the_commands_own(script, status, why, hides, tmp_path):
    ended = observed(["sh", "-c", script], tmp_path, hides=hides)
    assert (ended.status, ended.why, ended.command) == (status, why, ["sh", "-c", script])
    assert ended.duration > 0
    assert ended.leftovers == []


@pytest.mark.parametrize(
    ("name", "content", "mode", "status", "names"),
    [
        ("gone", None, 0, 127, "PATH"),
        ("gone.py", None, 0, 127, "python {path}"),
        ("plain", "", 0o600, 126, "executed"),
        ("train.py", "print()", 0o600, 126, "python {path}"),
        ("bare.py", "print()", 0o700, 126, "#!"),
        ("odd", "#!/nowhere/sh\n", 0o700, 127, "interpreter"),
    ],
)
def test_a_command_that_cannot_start_says_why(name, content, mode, status, names, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    ended = observed([str(path), "--lr", "1"], tmp_path)
    assert (ended.status, ended.why) == (status, "not found")
    (line,) = ended.last_lines
    assert line.startswith(f"{path}: ")
    assert names.format(path=path) in line


def test_hidden_output_leaves_its_last_lines(tmp_path, capfd):
    """Of a progress bar, the last state counts."""
    ended = observed(["sh", "-c", r"printf '10%%\r50%%\r100%%\n'; echo error >&2; printf end"], tmp_path, hides=True)
    assert ended.last_lines == ["100%", "error", "end"]
    assert capfd.readouterr() == ("", "")
    assert len(observed(python("print('x\\n' * 1000)"), tmp_path, hides=True).last_lines) == LINES


def test_output_is_the_commands_own(tmp_path, capfd):
    ended = observed(["sh", "-c", "readlink /proc/self/fd/1"], tmp_path)
    assert capfd.readouterr().out.strip() == os.readlink("/proc/self/fd/1")
    assert ended.last_lines == []


def test_a_process_whose_look_hangs_is_ended(tmp_path):
    (tmp_path / (LOOK_FILE + HANGS)).touch()
    began = time.monotonic()
    result = observed(python("import time; time.sleep(1000)"), tmp_path)
    assert (result.why, result.status) == ("failed", 128 + signal.SIGTERM)
    assert time.monotonic() - began < 60
