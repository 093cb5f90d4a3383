"""The command's processes while it runs: all its descendants, orphans and detached ones included."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterable, Iterator

from headrace.doctor.attach import proc
from headrace.doctor.process_stat import Stat

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
        self.live: dict[int, Stat] = {}
        self._strangers: set[int] = set()

    def started(self, command: int) -> None:
        """Its pid, which is this process's to wait for until the last of them is gone."""
        self._command = command
        self.look()

    def command(self) -> Stat | None:
        """The command itself, also once it has ended, until it was waited for."""
        return None if self._command is None else proc.stat(self._command)

    def look(self) -> None:
        """Sees who is new, and who has ended; takes note of the end of orphans, which is this process's to do. A signal
        handler may look while this does, so that nothing is changed but at the end."""
        pids = proc.pids()
        known = [proc.stat(pid) for pid in self.live]
        live = {now.pid: now for now in known if now is not None and self._is_live(now)}
        strangers = self._strangers & pids
        unknown = [now for pid in pids - strangers - live.keys() if (now := proc.stat(pid)) is not None]
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
            now = proc.stat(pid)
            if now is not None and now.started_ticks == live[pid].started_ticks:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signum)

    def _is_ours(self, now: Stat, live: dict[int, Stat]) -> bool:
        if now.pid == self._besides:
            return False
        if now.pid == self._command or now.parent in live:
            return True
        return now.parent == os.getpid() and now.group != os.getpgrp()

    def _is_live(self, now: Stat) -> bool:
        """An orphan that has ended is waited for here; the command by who started it. One that cannot be waited for yet
        counts as live: its other threads are still ending, or its parent is, and hands it on in a moment."""
        before = self.live.get(now.pid)
        if before is not None and before.started_ticks != now.started_ticks:
            return False
        if not now.has_ended:
            return True
        if now.parent == os.getpid() and now.pid != self._command:
            return not _buried(now.pid)
        parent = proc.stat(now.parent)
        return now.pid != self._command and (parent is None or parent.has_ended)


def _buried(child: int) -> bool:
    """Waits for a child that has ended, if that takes no time."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == child
    except ChildProcessError:
        return True
