"""Run a command with the probe in its processes, from its start to the end of the last process; list what it wrote."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import shutil
import signal
import stat as modes
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

import msgspec

from headrace.doctor.attach.injection import (
    TRACKERS,
    UnreachedWatch,
    offline_environment,
    probe_environment,
)
from headrace.doctor.attach.process_tree import (
    Descendants,
    Leftover,
    Patience,
    ProcessGroup,
    adopting_orphans,
    end_leftovers,
)
from headrace.doctor.attach.relay import BelowOutput, ControllingTerminal, OnLine, OutputRelay, SignalRelay
from headrace.doctor.probe import ProbeSettings
from headrace.doctor.session.model import CommandOutcome, UnreachedProcess

LOOK_S = 0.2
ENDS_S = ((1.5, signal.SIGTERM), (3.0, signal.SIGKILL))
"""Seconds after a request to end, and what a measured command that goes on gets then: its report is due."""
NOT_FOUND, NOT_EXECUTABLE = 127, 126  # as in shells
FAILED_ABOVE = 100
"""Exit status if steps wait longer than `--fail-above` allows."""
FAULTY_DATA = 101
"""Exit status of `--check data` if the data has faults."""
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
    """Outcome of a command, and what it left."""

    missed: list[UnreachedProcess] = msgspec.field(default_factory=list)
    leftovers: list[Leftover] = msgspec.field(default_factory=list)
    wrote: str = ""
    """Paths that a measured command created, changed and removed in the working directory."""


def run_command(
    command: list[str],
    settings: ProbeSettings,
    *,
    relay: bool,
    on_line: OnLine | None = None,
    below: BelowOutput | None = None,
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
        relay: Pass its output through this process. Otherwise the command inherits our descriptors, and survives us.
        on_line: Receives the relayed lines, in place of our own descriptors.
        below: Status line below the relayed output.
        on_start: Receives its pid.
        patience: How long to wait for processes that outlive it.
        variables: Environment variables that differ from ours.
        reads: True to pass on our standard input; otherwise it is empty.
        most_s: Time limit in seconds.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(adopting_orphans())
        running = _Running(settings, OutputRelay(on_line, below=below) if relay else None, below)
        stack.callback(running.close)
        stack.enter_context(running.signals)
        try:
            environ = probe_environment(Path(settings.folder), {**os.environ, **(variables or {})})
            if settings.scratch:
                environ = offline_environment(environ, Path(settings.scratch) / TRACKERS)
            running.start(command, environ, stdin=None if reads else subprocess.DEVNULL)
        except OSError as error:
            status = NOT_FOUND if isinstance(error, (FileNotFoundError, NotADirectoryError)) else NOT_EXECUTABLE
            return CommandResult(command, status, "not found", 0, [_why_not_started(command[0], error)])
        if on_start is not None:
            on_start(running.pid)
        running.wait(most_s)
        leftovers = running.clear(patience or Patience())
        return running.ended(command, leftovers)


class _Running:
    """The command, and everything that watches it."""

    def __init__(self, settings: ProbeSettings, relay: OutputRelay | None, below: BelowOutput | None) -> None:
        self._relay = relay
        self._below = below
        self._terminal = ControllingTerminal()
        self._group = ProcessGroup()
        self._descendants = Descendants()
        self._unreached = UnreachedWatch(Path(settings.evidence))
        self.signals = SignalRelay(
            self._group.signal, self._descendants.signal_all, (lambda: None) if relay is None else relay.resize
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._start = time.monotonic()
        self._end = self._start
        self._next_look = 0.0
        self._was_late = False
        self._patient_requests = int(settings.observe)
        """Requests to end that may take as long as the command likes: an observed run saves the user's own weights."""
        self._ends = list(ENDS_S)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, command: list[str], environ: dict[str, str], stdin: int | None) -> None:
        out, error = (None, None) if self._relay is None else (self._relay.stdout, self._relay.stderr)
        try:
            self._process = subprocess.Popen(
                command, env=environ, process_group=self._group.number, stdin=stdin, stdout=out, stderr=error
            )
        finally:
            if self._relay is not None:
                self._relay.started()
        self._descendants.started(self.pid)
        self.signals.started(self.pid)

    def wait(self, most_s: float | None) -> None:
        """Wait until the command ends, or is killed after `most_s` or `ENDS_S`. It stays a zombie until `ended`."""
        while not self._has_ended():
            self._pause(LOOK_S)
            asked_s = self.signals.asked_s[self._patient_requests :]
            while asked_s and self._ends and time.monotonic() - asked_s[0] > self._ends[0][0]:
                self._descendants.signal_all(self._ends.pop(0)[1])
            if most_s is not None and time.monotonic() - self._start > most_s:
                self._was_late = True
                self._descendants.signal_all(signal.SIGKILL)
        self._end = time.monotonic()
        self._terminal.take_back()

    def clear(self, patience: Patience) -> list[Leftover]:
        """Wait for its other processes, and end those that remain."""
        requests = self.signals.requests if self._patient_requests else 0
        return end_leftovers(self._descendants, patience, self._pause, lambda: self.signals.requests > requests)

    def ended(self, command: list[str], leftovers: list[Leftover]) -> CommandResult:
        assert self._process is not None
        code = self._process.wait()
        is_interrupted = self.signals.requests or code in (-signal.SIGINT, 128 + signal.SIGINT)
        why = "interrupted" if is_interrupted else "failed" if code else "finished"
        if self._relay is not None:
            self._relay.drain()
        return CommandResult(
            command,
            status=code if code >= 0 else 128 - code,
            why="timed out" if self._was_late else why,
            duration=round((self._end - self._start) * 1e6),
            last_lines=[] if self._relay is None else self._relay.last.lines(),
            missed=list(self._unreached.missed.values()),
            leftovers=leftovers,
        )

    def close(self) -> None:
        """Kill the command if an error of ours ended the watch, since nobody could report its actions."""
        if self._process is not None and self._process.returncode is None:
            self._group.signal(self.pid, signal.SIGKILL)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            end_leftovers(self._descendants, Patience(grace_s=0.0), time.sleep, lambda: True)
            self._process.wait()
        if self._relay is not None:
            self._relay.close()
        self._terminal.close()
        self._group.close()

    def _pause(self, seconds: float) -> None:
        """Relay output and watch processes for at most `seconds`."""
        readers = [] if self._relay is None else self._relay.readers()
        ready, _, _ = select.select([self.signals.wake, *readers], [], [], seconds)
        for reader in ready:
            if reader == self.signals.wake:
                self.signals.clear()
            elif self._relay is not None:
                self._relay.pump(reader)
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_S
            self._descendants.look()
            self._unreached.look(self._descendants)
            if self._below is not None:
                self._below.look()

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
        """Stop this process as a shell stops a job: the command wants the terminal, or the user its place.

        A command stopped by SIGSTOP is left to whoever stopped it.
        """
        if signum == signal.SIGSTOP:
            return
        if self._below is not None:
            self._below.hide()
        wants_terminal = signum in (signal.SIGTTIN, signal.SIGTTOU)
        if not (wants_terminal and self._terminal.lend(self._group.number)):
            was_lent = self._terminal.take_back()
            os.kill(os.getpid(), signal.SIGSTOP)
            if wants_terminal or was_lent:
                self._terminal.lend(self._group.number)
        self._group.signal(self.pid, signal.SIGCONT)


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


MOST_LISTED = 200_000
"""Number of entries above which a folder is not listed: about a second on a local disk."""
MOST_NAMED = 5
"""Number of paths that a note names; further paths are only counted."""
Listing = dict[str, tuple[int, int, int]]
"""Entries in a folder by path: mode, size and modification time in ns, the latter two 0 except for files."""


def list_folder(root: str, session: str) -> Listing | None:
    """List the entries in `root`; None if there are too many.

    Excludes the session, and files that receive our own output. Does not follow symbolic links.
    """
    entries: Listing = {}
    outputs = [os.fstat(number) for number in range(3) if os.path.isfile(f"/dev/fd/{number}")]
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if os.path.join(folder, name) != session]
        for path in (os.path.join(folder, name) for name in (*folders, *files)):
            with contextlib.suppress(OSError):
                stat = os.lstat(path)
                if any(os.path.samestat(stat, output) for output in outputs):
                    continue
                is_file = modes.S_ISREG(stat.st_mode)
                entries[path] = (stat.st_mode, stat.st_size * is_file, stat.st_mtime_ns * is_file)
        if len(entries) > MOST_LISTED:
            return None
    return entries


def written_text(root: str, before: Listing | None, after: Listing | None) -> str:
    """Return what was created, changed and removed between two listings of `root`; empty if nothing was."""
    if before is None or after is None:
        return f"Not looked for: the working directory has more than {MOST_LISTED:,} entries."
    changes = {
        "created": after.keys() - before.keys(),
        "changed": [path for path in after if path in before and before[path] != after[path]],
        "removed": before.keys() - after.keys(),
    }
    return "; ".join(f"{how}: {_named(paths, root)}" for how, paths in changes.items() if paths)


def _named(paths: Collection[str], root: str) -> str:
    """Return the first paths, relative to the working directory, with undecodable bytes escaped."""
    shown = sorted(os.path.relpath(path, root) for path in paths)
    text = ", ".join(os.fsencode(path).decode("utf-8", "backslashreplace") for path in shown[:MOST_NAMED])
    return f"{text} and {len(shown) - MOST_NAMED} more" if shown[MOST_NAMED:] else text
