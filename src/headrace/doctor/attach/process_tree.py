"""Processes of the command: descendants, orphans and detached ones included; leftovers, and when they stand still."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from headrace.doctor.probe.training.loop_watch import MARK
from headrace.doctor.session.model import Standstill
from headrace.system import core_wait_s, read_text

_SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 36, 37  # prctl(2)


@dataclass(frozen=True)
class ProcessStat:
    """One process as the kernel knows it."""

    pid: int
    status: str
    parent: int
    group: int
    session: int
    started_s: float
    """Start; with the pid, it distinguishes a process from a later one with the same number."""

    @property
    def has_ended(self) -> bool:
        """True if it has ended, even if still a zombie: its memory is gone, and only the exit status is left."""
        return self.status in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


def process_stat(pid: int) -> ProcessStat | None:
    """Return the state of a process, or None if it no longer exists."""
    with suppress(psutil.Error, ProcessLookupError):
        process = psutil.Process(pid)
        with process.oneshot():
            status, parent, started_s = process.status(), process.ppid(), process.create_time()
        return ProcessStat(pid, status, parent, os.getpgid(pid), os.getsid(pid), started_s)
    return None


def command_line(pid: int) -> list[str]:
    """Return a process's arguments, or none if it has ended."""
    with suppress(psutil.Error):
        found: list[str] = psutil.Process(pid).cmdline()
        return found
    return []


def ignores_hangup(pid: int) -> bool:
    """Return True if a process ignores the end of its terminal, as with nohup."""
    ignored = re.search(r"^SigIgn:\s*(\w+)$", read_text(f"/proc/{pid}/status") or "", re.MULTILINE)
    return ignored is not None and bool(int(ignored[1], 16) & (1 << (signal.SIGHUP - 1)))


class ProcessGroup:
    """Process group of the command.

    It is not ours, so a signal to our group reaches the command only when forwarded. The command is not the leader,
    since the leader of a group may not call setsid. The first member is an ended process that is not waited for, so its
    number is not reused for another group.
    """

    def __init__(self) -> None:
        none = subprocess.DEVNULL
        self._first = subprocess.Popen(["/bin/sh", "-c", ":"], process_group=0, stdin=none, stdout=none, stderr=none)
        self.number = self._first.pid

    def signal(self, member: int, signum: int) -> None:
        """Signal the whole group, or only `member` if it has left the group."""
        with suppress(ProcessLookupError, PermissionError):
            if os.getpgid(member) == self.number:
                os.killpg(self.number, signum)
            else:
                os.kill(member, signum)

    def close(self) -> None:
        self._first.wait()


@contextmanager
def adopting_orphans() -> Iterator[None]:
    """Adopt orphaned descendants in place of init, so that none is lost."""
    libc = ctypes.CDLL(None)
    before = ctypes.c_int(0)
    libc.prctl(_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


class Descendants:
    """The command, in its own process group, and all processes that descend from it.

    A look reads the state of known processes and of new pids, so a machine full of strangers costs one listing. An
    unknown child of this process is an orphan of the command, unless it existed before the command, or is in a process
    group that did: ours, or a job of the shell that became this process.
    """

    def __init__(self) -> None:
        """Start before the command does: all existing processes are strangers."""
        self._command: int | None = None
        self.live: dict[int, ProcessStat] = {}
        self._strangers = set(psutil.pids())
        self._groups = {now.group for pid in self._strangers if (now := process_stat(pid)) is not None}

    def started(self, command: int) -> None:
        """Set the command's pid. Only this process waits for it, after the last of its processes has ended."""
        self._command = command
        self._strangers.discard(command)  # a stranger may have had this number
        self._groups.discard(os.getpgid(command))
        self.look()

    def command(self) -> ProcessStat | None:
        """Return the command itself, even after its end, until it is waited for."""
        return None if self._command is None else process_stat(self._command)

    def look(self) -> None:
        """Find new and ended processes, and reap orphans. A signal handler may look too, so only the end assigns."""
        pids = set(psutil.pids())
        known = [process_stat(pid) for pid in self.live]
        live = {now.pid: now for now in known if now is not None and self._is_live(now)}
        strangers = self._strangers & pids
        unknown = [now for pid in pids - strangers - live.keys() if (now := process_stat(pid)) is not None]
        while found := [now for now in unknown if self._is_ours(now, live)]:  # parents come before children
            live.update({now.pid: now for now in found if self._is_live(now)})
            unknown = [now for now in unknown if now not in found]
        # A process that has ended, or seems to have lost its parent, may still become an orphan: it is reparented in a
        # moment.
        others = [now for now in unknown if not now.has_ended]
        parents = strangers.union((now.pid for now in others), (0, os.getpid()))
        self.live, self._strangers = live, strangers.union(now.pid for now in others if now.parent in parents)

    def signal_all(self, signum: int) -> None:
        self.look()
        self.signal(self.live, signum)

    def signal(self, pids: Iterable[int], signum: int) -> None:
        """Signal each pid that still belongs to the same process."""
        live = self.live
        for pid in list(pids):
            now = process_stat(pid)
            if now is not None and now.started_s == live[pid].started_s:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)

    def _is_ours(self, now: ProcessStat, live: dict[int, ProcessStat]) -> bool:
        if now.pid == self._command or now.parent in live:
            return True
        return now.parent == os.getpid() and now.group not in self._groups

    def _is_live(self, now: ProcessStat) -> bool:
        """Return True if a process lives. An ended orphan is waited for here, the command by its starter.

        A process that cannot be waited for yet counts as live: its other threads are still ending, or its ending parent
        is about to hand it on.
        """
        before = self.live.get(now.pid)
        if before is not None and before.started_s != now.started_s:
            return False
        if not now.has_ended:
            return True
        if now.parent == os.getpid() and now.pid != self._command:
            try:
                return os.waitpid(now.pid, os.WNOHANG)[0] != now.pid
            except ChildProcessError:
                return False
        parent = process_stat(now.parent)
        return now.pid != self._command and (parent is None or parent.has_ended)


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for leftovers. A DataLoader worker checks for its parent every 5 s."""

    grace_s: float = 6.0
    terminate_s: float = 3.0
    kill_s: float = 3.0


@dataclass(frozen=True)
class Leftover:
    """Process that outlived the command."""

    pid: int
    command: list[str]
    fate: str
    """`terminated`, `killed`, `left` (it had detached itself) or `stuck` (it survived SIGKILL)."""


def end_leftovers(
    descendants: Descendants, patience: Patience, wait: Callable[[float], None], hurry: Callable[[], bool]
) -> list[Leftover]:
    """Wait for processes that remain after the end of the command, then end them; return the fate of each.

    A process that detached itself, by a session that is neither ours nor the command's or by ignoring the hang-up
    signal, was meant to outlive the command: it is left alone and reported.

    Args:
        descendants: The command and its descendants.
        patience: How long to wait.
        wait: Waits at most the given time.
        hurry: Returns True to end the grace period.
    """
    command = descendants.command()
    sessions = {os.getsid(0), *([] if command is None else [command.session])}
    hangup_means_nothing = ignores_hangup(os.getpid())
    commands: dict[int, list[str]] = {}
    fates: dict[int, str] = {}

    def is_detached(pid: int) -> bool:
        if descendants.live[pid].session not in sessions:
            return True
        return not hangup_means_nothing and ignores_hangup(pid)

    def attached() -> list[int]:
        descendants.look()
        for pid in descendants.live:
            commands.setdefault(pid, command_line(pid))
        return [pid for pid in descendants.live if not is_detached(pid)]

    def settle(seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        deadline = time.monotonic() + seconds
        while attached() and not until() and (left := deadline - time.monotonic()) > 0:
            wait(min(left, 0.05))

    settle(patience.grace_s, until=hurry)
    for fate, signum, seconds in (
        ("terminated", signal.SIGTERM, patience.terminate_s),
        ("killed", signal.SIGKILL, patience.kill_s),
    ):
        left = attached()
        fates.update(dict.fromkeys(left, fate))
        descendants.signal(left, signum)
        settle(seconds)
    fates.update(dict.fromkeys(attached(), "stuck"))
    fates.update({pid: "left" for pid in descendants.live if is_detached(pid)})
    return [Leftover(pid, commands[pid], fate) for pid, fate in sorted(fates.items())]


IDLE_CORES = 0.1
"""Cores that all processes use together, below which none of them works for the thread that waits."""
CORE_BYTES_S = 5e6
"""Reads and writes that count as the work of one core, in bytes per second."""
CHECKED_S = 3.0
WORKING_S = 600.0
"""Time for which they may work until the command counts as standing still nevertheless."""
SHARED_MEMORY = "/dev/shm"


class StandstillMarks:
    """Marks of training threads that stand still, and the work of the command's processes until then.

    A start-up is no standstill: workers may import for minutes before their first batch, and wait for a server then.
    """

    def __init__(self, folder: Path, descendants: Descendants, idle_s: float) -> None:
        """`idle_s`: time for which no process may work if the command stands still."""
        self._folder, self._descendants, self._idle_s = folder, descendants, idle_s
        self._first_s: float | None = None
        self._looks: list[tuple[float, dict[int, tuple[float, float]]]] = []
        """Time and work of each look in the last `idle_s`, and of the last one before."""

    def stands(self) -> bool:
        """Return True once a training thread stands still, and no process of the command works for it."""
        marks, now = list(self._folder.glob(f"{MARK}*")), time.monotonic()
        self._first_s = None if not marks else self._first_s or now
        if self._looks and now - self._looks[-1][0] < CHECKED_S:
            return False
        self._looks.append((now, {pid: each for pid in self._descendants.live if (each := _work_s(pid)) is not None}))
        while len(self._looks) > 1 and now - self._looks[1][0] >= self._idle_s:
            self._looks.pop(0)
        since, before = self._looks[0]
        if self._first_s is None or now - since < self._idle_s:
            return False
        spinning, worked_s = _spinning(marks), 0.0
        for pid, done in self._looks[-1][1].items():
            cpu_s, moved_s = (now_s - then_s for now_s, then_s in zip(done, before.get(pid, (0.0, 0.0)), strict=True))
            worked_s += moved_s if pid in spinning else moved_s + cpu_s
        return worked_s < IDLE_CORES * (now - since) or now - self._first_s > WORKING_S

    def standstill(self) -> Standstill:
        """Return the state of all processes now."""
        self._descendants.look()
        try:
            free = shutil.disk_usage(SHARED_MEMORY).free
        except OSError:
            free = None
        return Standstill({pid: one.status for pid, one in self._descendants.live.items()}, free)


def _spinning(marks: Iterable[Path]) -> set[int]:
    """Return the processes that may wait for other ranks at full speed."""
    found = set[int]()
    for mark in marks:
        with suppress(OSError):  # its thread moves again
            found.update([int(mark.name.removeprefix(MARK))] if mark.stat().st_size else [])
    return found


def _work_s(pid: int) -> tuple[float, float] | None:
    """Return the work of a process so far, in seconds of a core: of computing, and of reading and writing.

    Waiting for a core counts as computing, and so do ended children. Mapped files are read in bytes, not in chars.
    """
    try:
        process = psutil.Process(pid)
        used, moved = process.cpu_times(), process.io_counters()
    except (psutil.Error, OSError):  # it has ended
        return None
    moved_bytes = moved.read_chars + moved.write_chars + moved.read_bytes
    return sum(used) + (core_wait_s(pid) or 0.0), moved_bytes / CORE_BYTES_S
