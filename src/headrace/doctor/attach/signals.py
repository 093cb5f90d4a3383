"""Signals that come to the doctor and are meant for the command."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable
from types import FrameType
from typing import Any

TO_GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
"""What a terminal sends goes to every process of the group, as it does without the doctor."""
TO_COMMAND = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""What people and schedulers send goes to the one process that they mean."""
TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Passes each on exactly once, since the command's process group is not ours. The second that asks for the end
    terminates all processes of the command, the third kills them. What this process ignores, as under nohup, stays
    ignored, here and in the command.

    Use it as a context in the main thread; `wake` becomes readable whenever a signal, or a child's end, has come.
    """

    def __init__(
        self,
        signal_group: Callable[[int, int], None],
        signal_all: Callable[[int], None],
        resize: Callable[[], None],
    ) -> None:
        """How to send a signal to the group of a command, and to all processes that come from it; what to do when our
        terminal has another size."""
        self._signal_group = signal_group
        self._signal_all = signal_all
        self._resize = resize
        self._command: int | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}
        self.requests = 0
        """How often the end was asked for."""

    def __enter__(self) -> Signals:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for signum in (*TO_GROUP, *TO_COMMAND):
            if signal.getsignal(signum) is not signal.SIG_IGN:
                self._before[signum] = signal.signal(signum, self._on)
        self._before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, before in self._before.items():
            signal.signal(signum, signal.SIG_DFL if before is None else before)
        signal.set_wakeup_fd(self._wakeup)
        self._reader.close()
        self._writer.close()

    @property
    def wake(self) -> int:
        """A descriptor."""
        return self._reader.fileno()

    def started(self, command: int) -> None:
        """From now on signals go to it; those that came before it was there go now."""
        self._command = command
        while self._early:
            self._pass_on(self._early.pop(0))

    def clear(self) -> None:
        """Makes `wake` unreadable until the next signal."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                continue

    def _on(self, signum: int, _: FrameType | None) -> None:
        if self._command is None:
            self._early.append(signum)
        else:
            self._pass_on(signum)

    def _pass_on(self, signum: int) -> None:
        if signum in TO_END:
            self.requests += 1
        if signum == signal.SIGWINCH:
            self._resize()
        if signum in TO_END and self.requests > 1:
            self._signal_all(signal.SIGTERM if self.requests == 2 else signal.SIGKILL)
        else:
            self._send(signum)

    def _send(self, signum: int) -> None:
        assert self._command is not None
        if signum in TO_GROUP:
            self._signal_group(self._command, signum)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self._command, signum)
