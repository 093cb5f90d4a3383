"""Run a command with the probe in its processes, from its start to the end of the last process."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from unittest.mock import patch

import msgspec

from headrace.doctor.attach.process_tree import (
    Descendants,
    Leftover,
    Patience,
    ProcessGroup,
    StandstillMarks,
    adopting_orphans,
    end_leftovers,
)
from headrace.doctor.attach.signals import ControllingTerminal, SignalRelay
from headrace.doctor.probe.look.value_look import HANGS, LOOK_FILE
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.session.model import CommandOutcome, Standstill

SITE_FOLDER = Path(__file__).parent / "site"
"""Folder of the sitecustomize.py, which must come first on PYTHONPATH."""
FOLDER_VARIABLE = "HEADRACE_DOCTOR"
"""Environment variable with the session's folder; without it the sitecustomize does nothing."""
TRACKERS = "trackers"
"""Folder in the scratch folder for the output of experiment trackers."""
_OFFLINE = {
    "WANDB_MODE": ("offline", {"disabled", "dryrun"}),
    "NEPTUNE_MODE": ("offline", {"debug", "disabled", "read-only"}),
    "SWANLAB_MODE": ("offline", {"disabled", "local"}),
    "CLEARML_OFFLINE_MODE": ("1", {"true", "yes"}),
    "COMET_START_ONLINE": ("0", {"false"}),
}
"""The value that takes each tracker offline, and user values with the same effect."""
_TRACKER_FOLDERS = ("WANDB_DIR", "COMET_OFFLINE_DIRECTORY", "NEPTUNE_DATA_DIRECTORY", "NEPTUNE_LOG_DIRECTORY")
_TRACKER_ADDRESSES = ("MLFLOW_TRACKING_URI", "MLFLOW_REGISTRY_URI")
_SERVER_IDS = ("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID")
LOOK_S = 0.2
OUTPUT = "output"
"""Name of the file for the output of a command that is not shown, in its session's folder."""
LINES, MOST_BYTES = 50, 1 << 16
"""Maximum number and bytes of the last lines of output."""
ENDS_S = ((1.5, signal.SIGTERM), (3.0, signal.SIGKILL))
"""Seconds after a request to end, or a look that hangs, and what a command that goes on gets: its report is due."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as in shells
FAILED_ABOVE = 100
"""Exit status if steps wait longer than `--fail-above` allows."""
FAULTY_DATA = 101
"""Exit status of `headrace check` if the data has a certain fault."""
DOCTOR_FAILED = 125
"""Exit status if the doctor failed, or could not judge the run for `--fail-above`; `git bisect run` skips it."""


def exit_status(command: int, *, wait_share: float | None, fail_above: float | None) -> int:
    """Return the command's own status if it failed, or else the verdict of `--fail-above`."""
    if command or fail_above is None:
        return command
    if wait_share is None:
        return DOCTOR_FAILED
    return FAILED_ABOVE if wait_share > fail_above else 0


class CommandResult(CommandOutcome):
    """Outcome of a command, and what it left running."""

    leftovers: list[Leftover] = msgspec.field(default_factory=list)


def run_command(
    command: list[str],
    settings: ProbeSettings,
    *,
    output: Path | None = None,
    on_start: Callable[[int], None] | None = None,
    patience: Patience | None = None,
    variables: Mapping[str, str] | None = None,
    reads: bool = True,
    most_s: float | None = None,
) -> CommandResult:
    """Run `command` until it and its child processes have ended. docs/doctor/internals.md describes the effects.

    Call this in the main thread, whose signals it takes over meanwhile, after writing the settings. If they name a
    scratch folder, experiment trackers are offline and write there.

    Args:
        command: The command, by argument.
        settings: Settings of the probes.
        output: File that receives its output. Otherwise the command inherits our descriptors.
        on_start: Receives its pid.
        patience: How long to wait for processes that outlive it.
        variables: Environment variables that differ from ours.
        reads: True to pass on our standard input; otherwise it is empty.
        most_s: Time limit in seconds.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(adopting_orphans())
        running = _Running(settings)
        stack.callback(running.close)
        stack.enter_context(running.signals)
        try:
            environ = probe_environment(Path(settings.folder), {**os.environ, **(variables or {})})
            if settings.scratch:
                environ = offline_environment(environ, Path(settings.scratch) / TRACKERS)
            running.start(command, environ, output, stdin=None if reads else subprocess.DEVNULL)
        except OSError as error:
            status = NOT_FOUND if isinstance(error, (FileNotFoundError, NotADirectoryError)) else NOT_EXECUTABLE
            return CommandResult(command, status, "not found", 0, [_why_not_started(command[0], error)])
        if on_start is not None:
            on_start(running.pid)
        running.wait(most_s)
        leftovers = running.clear(patience or Patience())
        return running.ended(command, leftovers, [] if output is None else _last_lines(output))


class _Running:
    def __init__(self, settings: ProbeSettings) -> None:
        self._terminal = ControllingTerminal()
        self._group = ProcessGroup()
        self._descendants = Descendants()
        self.signals = SignalRelay(self._group.signal, self._descendants.signal_all)
        self._process: subprocess.Popen[bytes] | None = None
        self._start = time.monotonic()
        self._end = self._start
        self._next_look = 0.0
        self._was_late = False
        self._patient_requests = int(settings.observe)
        """Requests to end that may take as long as the command likes: an observed run saves the user's own weights."""
        self._ends = list(ENDS_S)
        self._look_hangs = Path(settings.folder) / (LOOK_FILE + HANGS)
        self._end_from_s: float | None = None
        """Time from which the command is ended, since it stands still or its look at samples hangs."""
        self._marks = StandstillMarks(Path(settings.folder), self._descendants, settings.standstill_s)
        self._standstill: Standstill | None = None
        self._is_stalled = False

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, command: list[str], environ: dict[str, str], output: Path | None, stdin: int | None) -> None:
        with contextlib.ExitStack() as stack:
            file = None if output is None else stack.enter_context(open(output, "wb"))
            self._process = subprocess.Popen(
                command, env=environ, process_group=self._group.number, stdin=stdin, stdout=file, stderr=file
            )
        self._descendants.started(self.pid)
        self.signals.started(self.pid)

    def wait(self, most_s: float | None) -> None:
        """Wait until the command ends, or is killed after `most_s` or `ENDS_S`. It stays a zombie until `ended`."""
        while not self._has_ended():
            self._pause(LOOK_S)
            if self.signals.requests and self._standstill is None:
                self._standstill = self._marks.standstill()
            elif not self._patient_requests and not self._is_stalled and self._marks.stands():
                self._end_standstill()
            if self._end_from_s is None and self._look_hangs.exists():  # a process whose sample never came may not end
                self._end_from_s = time.monotonic()
            since_s = next(iter(self.signals.asked_s[self._patient_requests :]), self._end_from_s)
            while since_s is not None and self._ends and time.monotonic() - since_s > self._ends[0][0]:
                self._descendants.signal_all(self._ends.pop(0)[1])
            if most_s is not None and time.monotonic() - self._start > most_s:
                self._was_late = True
                self._descendants.signal_all(signal.SIGKILL)
        self._end = time.monotonic()
        self._terminal.take_back()

    def _end_standstill(self) -> None:
        self._standstill, self._is_stalled = self._marks.standstill(), True
        self._end_from_s = time.monotonic()
        self._group.signal(self.pid, signal.SIGINT)

    def clear(self, patience: Patience) -> list[Leftover]:
        """Wait for its other processes, and end those that remain."""
        requests = self.signals.requests if self._patient_requests else 0
        return end_leftovers(self._descendants, patience, self._pause, lambda: self.signals.requests > requests)

    def ended(self, command: list[str], leftovers: list[Leftover], last_lines: list[str]) -> CommandResult:
        assert self._process is not None
        code = self._process.wait()
        is_interrupted = self.signals.requests or code in (-signal.SIGINT, 128 + signal.SIGINT)
        why = "interrupted" if is_interrupted else "failed" if code else "finished"
        why = "stalled" if self._is_stalled else why
        return CommandResult(
            command,
            status=code if code >= 0 else 128 - code,
            why="timed out" if self._was_late else why,
            duration=round((self._end - self._start) * 1e6),
            last_lines=last_lines,
            standstill=self._standstill,
            leftovers=leftovers,
        )

    def close(self) -> None:
        """Kill the command if an error of ours ended the watch, since nobody could report its actions."""
        if self._process is not None and self._process.returncode is None:
            self._group.signal(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            end_leftovers(self._descendants, Patience(grace_s=0.0), time.sleep, lambda: True)
            self._process.wait()
        self._terminal.close()
        self._group.close()

    def _pause(self, seconds: float) -> None:
        """Watch processes for at most `seconds`."""
        if select.select([self.signals.wake], [], [], seconds)[0]:
            self.signals.clear()
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            self._descendants.look()

    def _has_ended(self) -> bool:
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return False
        if state.si_code != os.CLD_STOPPED:
            return True
        os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        self._stopped(state.si_status)
        return False

    def _stopped(self, signum: int) -> None:
        """Stop this process as a shell stops a job, unless SIGSTOP stopped the command: whoever sent it resumes it."""
        if signum == signal.SIGSTOP:
            return
        wants_terminal = signum in (signal.SIGTTIN, signal.SIGTTOU)
        if not (wants_terminal and self._terminal.lend(self._group.number)):
            was_lent = self._terminal.take_back()
            os.kill(os.getpid(), signal.SIGSTOP)
            if wants_terminal or was_lent:
                self._terminal.lend(self._group.number)
        self._group.signal(self.pid, signal.SIGCONT)


def _last_lines(output: Path) -> list[str]:
    """Return the last lines of a command's output; of a progress bar's line, its last text."""
    with open(output, "rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - MOST_BYTES, 0))
        text = file.read().decode("utf-8", "replace")
    return [line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n")[-LINES:] if text]


def _why_not_started(program: str, error: OSError) -> str:
    """Return what was expected, what was found, and a remedy."""
    if isinstance(error, FileNotFoundError) and shutil.which(program) is not None:
        return f"{program}: the interpreter that its first line names does not exist"
    advice = f"; to run a Python script, say: python {program}" if program.endswith(".py") else ""
    if isinstance(error, FileNotFoundError):
        where = advice or "; give its path, or look at PATH"
        return f"{program}: expected a program, found none of that name{where}"
    if isinstance(error, PermissionError):
        return f"{program}: expected a program, got a file that may not be executed{advice}"
    if error.errno == errno.ENOEXEC:
        return f"{program}: expected a program, got a file without a first line that names one (#!){advice}"
    return f"{program}: cannot be started: {error.strerror}{advice}"


def probe_environment(folder: Path, inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with the probe added. The previous PYTHONPATH follows the probe's folder."""
    paths = [str(SITE_FOLDER), *filter(None, [inherited.get("PYTHONPATH")])]
    return {**inherited, FOLDER_VARIABLE: str(folder.absolute()), "PYTHONPATH": os.pathsep.join(paths)}


def offline_environment(inherited: Mapping[str, str], folder: Path) -> dict[str, str]:
    """Return the environment with each experiment tracker offline and writing only to `folder`."""
    environment = {name: value for name, value in inherited.items() if name not in _SERVER_IDS}
    for name, (value, others) in _OFFLINE.items():
        if environment.get(name, "").lower() not in others:
            environment[name] = value
    environment.update(dict.fromkeys(_TRACKER_FOLDERS, str(folder)))
    environment.update(dict.fromkeys(_TRACKER_ADDRESSES, (folder / "mlflow").as_uri()))
    return environment


@contextlib.contextmanager
def trackers_offline(settings: ProbeSettings) -> Iterator[None]:
    """Take the trackers of this process offline in the context; they write to the scratch folder of the settings."""
    with patch.dict(os.environ, offline_environment(os.environ, Path(settings.scratch) / TRACKERS), clear=True):
        yield
