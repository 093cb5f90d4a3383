"""Processes of the command: its descendants, orphans and detached ones included, and those that outlive it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# -- from doctor/process_stat.py: What Linux tells of a process in one line, /proc/PID/stat (man 5 proc_pid_stat).


@dataclass(frozen=True)
class ProcessStat:
    """What is used of it."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    waited_ticks: int
    """CPU time of the processes that it has waited for, and of those that these had."""
    threads: int
    started_ticks: int
    """Since the machine began; with the pid, it tells a process from a later one of the same number."""

    @property
    def has_ended(self) -> bool:
        """A zombie counts: its memory is gone, and only its exit status is left to fetch."""
        return self.state in ("Z", "X", "x")


def parse_process_stat(text: str) -> ProcessStat | None:
    """None where that is in a form that is not the kernel's."""
    before, opened, after = text.partition("(")
    name, closed, rest = after.rpartition(")")  # the name may hold anything
    words = rest.split()
    if not opened or not closed or len(words) < 20:
        return None
    try:
        pid, *numbers = map(int, [before, *words[1:20]])
    except ValueError:
        return None
    parent, group, session = numbers[:3]
    major, (user, system), waited = numbers[8], numbers[10:12], sum(numbers[12:14])
    return ProcessStat(
        pid, name, words[0], parent, group, session, major, user, system, waited, numbers[16], numbers[18]
    )


# -- from doctor/attach/proc.py: What Linux's /proc tells of one process.


PROC = Path("/proc")
SIGHUP_BIT = 1


def all_pids() -> set[int]:
    return {int(entry.name) for entry in PROC.iterdir() if entry.name.isdigit()}


def process_stat(pid: int) -> ProcessStat | None:
    """None where it has ended."""
    return parse_process_stat(_read_proc(pid, "stat") or "")


def command_line(pid: int) -> list[str]:
    """Its command line; empty where it has ended."""
    return (_read_proc(pid, "cmdline") or "").split("\0")[:-1]


def process_environment(pid: int) -> dict[str, str] | None:
    """What it was started with; None where that is not ours to read."""
    text = _read_proc(pid, "environ")
    if text is None:
        return None
    return dict(pair.partition("=")[::2] for pair in text.split("\0") if "=" in pair)


def mapped_files(pid: int) -> str:
    """The files that it has mapped; empty where it has ended, or that is not ours to read."""
    return _read_proc(pid, "maps") or ""


def ignores_hangup(pid: int) -> bool:
    """Whether it was told to outlive its terminal, as by nohup."""
    for line in (_read_proc(pid, "status") or "").splitlines():
        name, _, value = line.partition(":")
        if name == "SigIgn":
            return bool(int(value, 16) & SIGHUP_BIT)
    return False


def _read_proc(pid: int, name: str) -> str | None:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return None


# -- from doctor/attach/processes.py: The command's processes while it runs: all its descendants, orphans and detached
# ones included.


_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37  # prctl(2)


@contextlib.contextmanager
def adopting_orphans() -> Iterator[None]:
    """A descendant whose parent ends becomes a child of this process, not of init, so that none is lost."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int(0)
    libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


class Descendants:
    """The command, in a process group that is not this process's, and whatever comes from it.

    A look reads the state of those known and of pids not seen before, so that a machine full of strangers costs one
    listing. An unknown child of this process is an orphan of the command's, unless it is in this process's group.
    """

    def __init__(self, besides: int = 0) -> None:
        """`besides` is a child of this process that is none of the command's, though in its group."""
        self._besides = besides
        self._command: int | None = None
        self.live: dict[int, ProcessStat] = {}
        self._strangers: set[int] = set()

    def started(self, command: int) -> None:
        """Its pid, which is this process's to wait for until the last of them is gone."""
        self._command = command
        self.look()

    def command(self) -> ProcessStat | None:
        """The command itself, also once it has ended, until it was waited for."""
        return None if self._command is None else process_stat(self._command)

    def look(self) -> None:
        """Sees who is new, and who has ended; takes note of the end of orphans, which is this process's to do. A signal
        handler may look while this does, so that nothing is changed but at the end."""
        pids = all_pids()
        known = [process_stat(pid) for pid in self.live]
        live = {now.pid: now for now in known if now is not None and self._is_live(now)}
        strangers = self._strangers & pids
        unknown = [now for pid in pids - strangers - live.keys() if (now := process_stat(pid)) is not None]
        while found := [now for now in unknown if self._is_ours(now, live)]:  # parents come before children
            live.update({now.pid: now for now in found if self._is_live(now)})
            unknown = [now for now in unknown if now not in found]
        # One that has ended, or whose parent was read as gone, may be an orphan yet: it is handed on in a moment.
        others = [now for now in unknown if not now.has_ended]
        parents = strangers.union((now.pid for now in others), (0, os.getpid(), self._besides))
        self.live, self._strangers = live, strangers.union(now.pid for now in others if now.parent in parents)

    def signal_all(self, signum: int) -> None:
        self.look()
        self.signal(self.live, signum)

    def signal(self, pids: Iterable[int], signum: int) -> None:
        """To each of these that still is the process that it was."""
        live = self.live
        for pid in list(pids):
            now = process_stat(pid)
            if now is not None and now.started_ticks == live[pid].started_ticks:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)

    def _is_ours(self, now: ProcessStat, live: dict[int, ProcessStat]) -> bool:
        if now.pid == self._besides:
            return False
        if now.pid == self._command or now.parent in live:
            return True
        return now.parent == os.getpid() and now.group != os.getpgrp()

    def _is_live(self, now: ProcessStat) -> bool:
        """An orphan that has ended is waited for here; the command by who started it. One that cannot be waited for yet
        counts as live: its other threads are still ending, or its parent is, and hands it on in a moment."""
        before = self.live.get(now.pid)
        if before is not None and before.started_ticks != now.started_ticks:
            return False
        if not now.has_ended:
            return True
        if now.parent == os.getpid() and now.pid != self._command:
            return not _buried(now.pid)
        parent = process_stat(now.parent)
        return now.pid != self._command and (parent is None or parent.has_ended)


def _buried(child: int) -> bool:
    """Waits for a child that has ended, if that takes no time."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True


# -- from doctor/attach/leftovers.py: Processes that are still there once the command has ended.


@dataclass(frozen=True)
class Patience:
    """How long leftovers are waited for. A DataLoader's worker looks for its parent every 5 s."""

    grace_s: float = 6.0
    terminate_s: float = 3.0
    kill_s: float = 3.0


@dataclass(frozen=True)
class Leftover:
    """One of them. `fate`: `terminated`, `killed`, `left` (it had detached itself) or `stuck` (not even killed)."""

    pid: int
    command: list[str]
    fate: str


class Leftovers:
    """Waits for them, then ends them. One that detached itself, by a session that is neither ours nor the command's or
    by ignoring the hang-up signal, was meant to outlive the command: it is left alone and named."""

    def __init__(
        self, descendants: Descendants, patience: Patience, wait: Callable[[float], None], hurry: Callable[[], bool]
    ) -> None:
        """`wait(s)` passes at most so much time; once `hurry()`, no more grace is given."""
        self._descendants = descendants
        self._patience = patience
        self._wait = wait
        self._hurry = hurry
        command = descendants.command()
        self._sessions = {os.getsid(0), *([] if command is None else [command.session])}
        self._hangup_means_nothing = ignores_hangup(os.getpid())
        self._commands: dict[int, list[str]] = {}
        self._fates: dict[int, str] = {}

    def clear(self) -> list[Leftover]:
        self._settle(self._patience.grace_s, until=self._hurry)
        self._end("terminated", signal.SIGTERM, self._patience.terminate_s)
        self._end("killed", signal.SIGKILL, self._patience.kill_s)
        self._fates.update(dict.fromkeys(self._attached(), "stuck"))
        self._fates.update({pid: "left" for pid in self._descendants.live if self._is_detached(pid)})
        return [Leftover(pid, self._commands[pid], fate) for pid, fate in sorted(self._fates.items())]

    def _end(self, fate: str, signum: int, seconds: float) -> None:
        attached = self._attached()
        self._fates.update(dict.fromkeys(attached, fate))
        self._descendants.signal(attached, signum)
        self._settle(seconds, until=lambda: False)

    def _settle(self, seconds: float, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + seconds
        while self._attached() and not until() and (left := deadline - time.monotonic()) > 0:
            self._wait(min(left, 0.05))

    def _attached(self) -> list[int]:
        self._descendants.look()
        for pid in self._descendants.live:
            self._commands.setdefault(pid, command_line(pid))
        return [pid for pid in self._descendants.live if not self._is_detached(pid)]

    def _is_detached(self, pid: int) -> bool:
        if self._descendants.live[pid].session not in self._sessions:
            return True
        return not self._hangup_means_nothing and ignores_hangup(pid)


# -- from doctor/attach/group.py: The command's process group.


class ProcessGroup:
    """Not ours, so that what is sent to our group does not reach the command, and passing it on is once. Nor does the
    command lead it, since who leads a group may not call setsid: its first member is a process that has ended, and
    that, not waited for, keeps the number from being given to another group."""

    def __init__(self) -> None:
        none = subprocess.DEVNULL
        self._first = subprocess.Popen(["/bin/sh", "-c", ":"], process_group=0, stdin=none, stdout=none, stderr=none)
        self.number = self._first.pid

    def signal(self, member: int, signum: int) -> None:
        """To the whole group, or to `member` alone where it has left it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpgid(member) == self.number:
                os.killpg(self.number, signum)
            else:
                os.kill(member, signum)

    def close(self) -> None:
        self._first.wait()
