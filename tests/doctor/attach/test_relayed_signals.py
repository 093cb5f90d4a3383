"""Signals that come to the doctor: the command gets each once, is waited for, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import termios
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psutil
import pytest
from attach_runs import doctor, ended, python
from processes import eventually

from headrace.doctor.attach.process_tree import ProcessGroup
from headrace.doctor.attach.signals import SignalRelay

SAY = """
import os

def say(*words):
    # Not print, which may not be called again by the handler of a signal that comes while it writes.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
"""

COUNTS = f"""{SAY}
import signal

got = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
    signal.signal(number, lambda number, _: (got.append(signal.Signals(number).name), say("got")))
signal.signal(signal.SIGUSR2, lambda *_: (say(*got), os._exit(5)))
say("ready", os.getpid())
while True:
    signal.pause()
"""

LEAVES = COUNTS.replace("got = []", "got = []; os.setsid()")

STUBBORN = f"""{SAY}
import signal, subprocess

signal.signal(signal.SIGINT, lambda *_: say("got"))
signal.signal(signal.SIGTERM, lambda *_: say("asked to end"))
say("ready")
child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
say("child", child.pid)
while True:
    signal.pause()
"""


def heard(process: subprocess.Popen[str], word: str) -> list[str]:
    """The rest of the next line that begins so."""
    assert process.stdout is not None
    for line in process.stdout:
        first, *rest = line.split() or [""]
        if first == word:
            return rest
    raise AssertionError(f"the doctor ended before it said {word!r}")


def to_process(process: subprocess.Popen[str], signum: int) -> None:
    os.kill(process.pid, signum)


def to_group(process: subprocess.Popen[str], signum: int) -> None:
    os.killpg(process.pid, signum)


@pytest.mark.one_in(7)
@pytest.mark.parametrize("send", [to_process, to_group])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1], ids=str)
def test_the_command_gets_a_signal_once(signum, send, tmp_path):
    with doctor(python(COUNTS), tmp_path) as process:
        heard(process, "ready")
        send(process, signum)
        heard(process, "got")
        send(process, signal.SIGUSR2)  # passed on after the other one, and all copies of it
        assert heard(process, signal.Signals(signum).name) == []
        said = ended(process)
    assert said["status"] == 5
    assert said["why"] == ("failed" if signum == signal.SIGUSR1 else "interrupted")
    assert said["leftovers"] == []


@pytest.mark.one_in(2)
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_command_in_a_session_of_its_own_gets_it_too(signum, tmp_path):
    with doctor(python(LEAVES), tmp_path) as process:
        heard(process, "ready")
        process.send_signal(signum)
        heard(process, "got")
        process.send_signal(signal.SIGUSR2)
        assert heard(process, signal.Signals(signum).name) == []
        assert ended(process)["status"] == 5


def test_a_second_request_terminates_and_a_third_kills(tmp_path):
    with doctor(python(STUBBORN), tmp_path) as process:
        heard(process, "ready")
        child = int(heard(process, "child")[0])
        process.send_signal(signal.SIGINT)
        heard(process, "got")
        process.send_signal(signal.SIGINT)
        assert heard(process, "asked") == ["to", "end"]
        assert eventually(
            lambda: not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
        )  # in a session of its own
        process.send_signal(signal.SIGINT)
        said = ended(process)
    assert (said["status"], said["why"]) == (128 + signal.SIGKILL, "interrupted")


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_measured_command_that_does_not_end_on_request_is_ended(signum, tmp_path):
    with doctor(python(STUBBORN), tmp_path, observe=False) as process:
        heard(process, "ready")
        heard(process, "child")
        process.send_signal(signum)
        assert heard(process, "asked") == ["to", "end"]
        said = ended(process)
    assert (said["status"], said["why"]) == (128 + signal.SIGKILL, "interrupted")
    assert said["leftovers"] == []


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_comes_before_the_command_is_not_lost(signum):
    with closing(ProcessGroup()) as group, SignalRelay(group.signal, lambda _: None) as signals:
        signal.raise_signal(signum)
        command = subprocess.Popen(["cat"], stdin=subprocess.PIPE, process_group=group.number)
        signals.started(command.pid)
        assert command.wait() == -signum
        assert signals.requests == 1
    assert command.stdin is not None
    command.stdin.close()


def test_what_was_there_before_is_there_again():
    before = [signal.getsignal(signum) for signum in signal.valid_signals()]
    with SignalRelay(lambda *_: None, lambda _: None):
        assert signal.getsignal(signal.SIGINT) != signal.default_int_handler
    assert [signal.getsignal(signum) for signum in signal.valid_signals()] == before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.long
def test_what_nohup_ignores_stays_ignored(tmp_path):
    def ignore() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    source = "import os, signal; print('ready', signal.getsignal(1) is signal.SIG_IGN, flush=True); input()"
    with doctor(python(source), tmp_path, stdin=subprocess.PIPE, preexec_fn=ignore) as process:
        assert heard(process, "ready") == ["True"]
        process.send_signal(signal.SIGHUP)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        said = ended(process)
    assert (said["status"], said["why"]) == (0, "finished")


@contextmanager
def doctor_on_terminal(command: list[str], folder: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The doctor leads a session that has a terminal, of which the test holds the other end."""
    outer, inner = pty.openpty()
    attributes = termios.tcgetattr(inner)
    attributes[3] &= ~termios.ECHO
    termios.tcsetattr(inner, termios.TCSANOW, attributes)

    def take_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    with doctor(command, folder, stdin=inner, preexec_fn=take_terminal) as process:
        os.close(inner)
        yield process, outer
    os.close(outer)


ASKS = "print('ready', flush=True); print('read', input(), flush=True); print('read', input(), flush=True)"


def test_a_command_may_ask_at_the_terminal_and_ctrl_c_ends_it(tmp_path):
    with doctor_on_terminal(python(ASKS), tmp_path) as (process, keys):
        heard(process, "ready")
        os.write(keys, b"one\n")
        assert heard(process, "read") == ["one"]
        os.write(keys, b"\x03")
        said = ended(process)
    assert (said["status"], said["why"]) == (128 + signal.SIGINT, "interrupted")


def test_ctrl_z_stops_both_and_both_go_on(tmp_path):
    with doctor_on_terminal(python(COUNTS), tmp_path) as (process, keys):
        command = int(heard(process, "ready")[0])
        os.write(keys, b"\x1a")
        assert eventually(lambda: is_stopped(process.pid) and is_stopped(command))
        process.send_signal(signal.SIGCONT)
        assert eventually(lambda: not is_stopped(process.pid) and not is_stopped(command))
        process.send_signal(signal.SIGUSR2)
        assert ended(process)["status"] == 5


def is_stopped(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() == psutil.STATUS_STOPPED
