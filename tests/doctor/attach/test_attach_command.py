"""A command that the doctor runs: its status, its output, what is said where it does not start."""

from __future__ import annotations

import os
import signal
import time

import pytest
from attach_runs import observed, python

from headrace.doctor.attach.command import LINES
from headrace.doctor.probe.look.value_look import HANGS, LOOK_FILE


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
    ("name", "content", "mode", "status", "text"),
    [
        ("gone", None, 0, 127, "{path}: expected a program, found none of that name; give its path, or look at PATH"),
        (
            "gone.py",
            None,
            0,
            127,
            "{path}: expected a program, found none of that name; to run a Python script, say: python {path}",
        ),
        ("plain", "", 0o600, 126, "{path}: expected a program, got a file that may not be executed"),
        (
            "train.py",
            "print()",
            0o600,
            126,
            "{path}: expected a program, got a file that may not be executed; to run a Python script, "
            "say: python {path}",
        ),
        (
            "bare.py",
            "print()",
            0o700,
            126,
            "{path}: expected a program, got a file without a first line that names one (#!); to run a Python script, "
            "say: python {path}",
        ),
        ("odd", "#!/nowhere/sh\n", 0o700, 127, "{path}: the interpreter that its first line names does not exist"),
    ],
)
def test_a_command_that_cannot_start_says_why(name, content, mode, status, text, tmp_path):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    ended = observed([str(path), "--lr", "1"], tmp_path)
    assert (ended.status, ended.why) == (status, "not found")
    assert ended.last_lines == [text.format(path=path)]


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
