"""A command that the doctor runs: its status, its output, what is said where it does not start."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import termios

import pytest
from attach_runs import observed, python

from headrace.doctor.attach.relay import LINES, LastLines, OutputRelay


@pytest.mark.parametrize("relay", [True, False], ids=["relayed", "inherited"])
@pytest.mark.parametrize(
    ("script", "status", "why"),
    [
        ("exit 0", 0, "finished"),
        ("exit 3", 3, "failed"),
        ("kill -9 $$", 128 + signal.SIGKILL, "failed"),
        ("kill -INT $$", 128 + signal.SIGINT, "interrupted"),
    ],
)
def test_the_status_is_the_commands_own(script, status, why, relay, tmp_path):
    ended = observed(["sh", "-c", script], tmp_path, relay=relay)
    assert (ended.status, ended.why, ended.command) == (status, why, ["sh", "-c", script])
    assert ended.duration > 0
    assert ended.leftovers == ended.missed == []


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
    ended = observed([str(path), "--lr", "1"], tmp_path, relay=True)
    assert (ended.status, ended.why) == (status, "not found")
    assert ended.last_lines == [text.format(path=path)]


def test_output_passes_through_each_its_own_way(tmp_path, capfd):
    ended = observed(["sh", "-c", "echo out; echo error >&2"], tmp_path, relay=True)
    assert capfd.readouterr() == ("out\n", "error\n")
    assert sorted(ended.last_lines) == ["error", "out"]


def test_output_is_the_commands_own_where_it_is_not_relayed(tmp_path, capfd):
    ended = observed(["sh", "-c", "readlink /proc/self/fd/1"], tmp_path)
    assert capfd.readouterr().out.strip() == os.readlink("/proc/self/fd/1")
    assert ended.last_lines == []


def test_lines_go_elsewhere_where_somebody_wants_them(tmp_path, capfd):
    lines: list[str] = []
    observed(["sh", "-c", "echo one; printf two"], tmp_path, relay=True, on_line=lines.append)
    assert lines == ["one"]
    assert capfd.readouterr() == ("", "")


def test_an_error_of_the_listener_leaves_nothing_behind(tmp_path):
    def refuse(line: str) -> None:
        raise RuntimeError(line)

    with pytest.raises(RuntimeError, match="ready"):
        observed(["sh", "-c", "echo ready; sleep 60"], tmp_path, relay=True, on_line=refuse)


def test_more_output_than_a_pipe_holds_passes_whole(tmp_path, capfd):
    ended = observed(python("for number in range(40_000): print(number)"), tmp_path, relay=True)
    assert capfd.readouterr().out.split() == [str(number) for number in range(40_000)]
    assert ended.last_lines == [str(number) for number in range(40_000 - LINES, 40_000)]


def test_a_reader_that_goes_away_is_seen_by_the_command(tmp_path):
    """As `command | head` would have it: a closed pipe, not one that nobody empties."""
    read, write = os.pipe()
    os.close(read)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "headrace.doctor.attach.command.OutputRelay", lambda on_line, **_: OutputRelay(on_line, (write, 2))
        )
        ended = observed(["sh", "-c", "trap 'exit 9' PIPE; while echo line; do :; done; exit 9"], tmp_path, relay=True)
    os.close(write)
    assert ended.status == 9


def test_a_terminal_stays_one_of_the_same_size(tmp_path):
    source = """
        import os, sys
        print(os.isatty(1), os.isatty(2), tuple(os.get_terminal_size(1)), os.ttyname(1) == os.ttyname(2))
    """
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "headrace.doctor.attach.command.OutputRelay", lambda on_line, **_: OutputRelay(on_line, (inner, inner))
        )
        ended = observed(python(source), tmp_path, relay=True)
    assert ended.last_lines == ["True True (77, 33) True"]
    assert os.read(outer, 1000) == b"True True (77, 33) True\r\n"  # one CR: that of the terminal that is ours
    os.close(outer)
    os.close(inner)


def test_one_file_for_both_keeps_the_order(tmp_path):
    """As `command 2>&1 | tee log` has it."""
    read, write = os.pipe()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "headrace.doctor.attach.command.OutputRelay", lambda on_line, **_: OutputRelay(on_line, (write, write))
        )
        observed(["sh", "-c", "for n in 1 2 3; do echo o$n; echo e$n >&2; done"], tmp_path, relay=True)
    os.close(write)
    assert os.read(read, 1000).split() == b"o1 e1 o2 e2 o3 e3".split()
    os.close(read)


def test_of_a_progress_bar_the_last_state_counts():
    last = LastLines()
    last.feed(1, b"10%\r50%\r\x1b[1;34m100%\x1b[0m\ndone\r\n")
    last.feed(2, b"half \xff of \xe2\x82")
    last.feed(2, b"\xac a line")
    assert last.lines() == ["100%", "done", "half � of € a line"]


def test_a_line_without_end_is_bounded():
    last = LastLines()
    for _ in range(100):
        last.feed(1, b"x" * 1000)
    assert [len(line) for line in last.lines()] == [4000]
