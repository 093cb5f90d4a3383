"""Processes that are still there once the command has ended."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from headrace.doctor.attach import proc
from headrace.doctor.attach.process_tree import Descendants


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
        self._hangup_means_nothing = proc.ignores_hangup(os.getpid())
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
            self._commands.setdefault(pid, proc.arguments(pid))
        return [pid for pid in self._descendants.live if not self._is_detached(pid)]

    def _is_detached(self, pid: int) -> bool:
        if self._descendants.live[pid].session not in self._sessions:
            return True
        return not self._hangup_means_nothing and proc.ignores_hangup(pid)
