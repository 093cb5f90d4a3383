"""Signals and the terminal between the user and the command."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

TO_GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
"""Signals from a terminal, which go to every process of the group, as without the doctor."""
TO_COMMAND = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals from people and schedulers, which go to the command's process alone."""
TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class SignalRelay:
    """Signals to the doctor, each forwarded exactly once, since the command's process group is not ours.

    The second signal to end terminates all processes of the command, the third kills them. A signal that this process
    ignores, as under nohup, stays ignored, here and in the command. Use it as a context manager in the main thread;
    `wake` becomes readable after each signal or end of a child.
    """

    def __init__(self, signal_group: Callable[[int, int], None], signal_all: Callable[[int], None]) -> None:
        """Store functions to signal the command's group, and all its processes."""
        self._signal_group = signal_group
        self._signal_all = signal_all
        self._command: int | None = None
        self._early: list[int] = []
        self._before: dict[int, Any] = {}
        self.asked_s: list[float] = []
        """Times of the requests to end, by time.monotonic()."""

    def __enter__(self) -> SignalRelay:
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
        """Descriptor that becomes readable."""
        return self._reader.fileno()

    @property
    def requests(self) -> int:
        return len(self.asked_s)

    def started(self, command: int) -> None:
        """Forward signals to this process from now on, beginning with those that came before its start."""
        self._command = command
        while self._early:
            self._pass_on(self._early.pop(0), command)

    def clear(self) -> None:
        """Make `wake` unreadable until the next signal."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                continue

    def _on(self, signum: int, _: FrameType | None) -> None:
        if self._command is None:
            self._early.append(signum)
        else:
            self._pass_on(signum, self._command)

    def _pass_on(self, signum: int, command: int) -> None:
        self.asked_s += [time.monotonic()] if signum in TO_END else []
        if signum in TO_END and self.requests > 1:
            self._signal_all(signal.SIGTERM if self.requests == 2 else signal.SIGKILL)
        elif signum in TO_GROUP:
            self._signal_group(command, signum)
        else:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(command, signum)


class ControllingTerminal:
    """The controlling terminal, if any, which the command may read from on request.

    It belongs to this process's group, so that Ctrl-C arrives here. Once the command is stopped because it wants to
    read, the terminal is lent to its group.
    """

    def __init__(self) -> None:
        try:
            self._descriptor: int | None = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = None
        self._is_lent = False

    def lend(self, group: int) -> bool:
        """Lend the terminal; return False if this process is in the background and cannot."""
        try:
            if self._descriptor is None or os.tcgetpgrp(self._descriptor) != os.getpgrp():
                return False
            os.tcsetpgrp(self._descriptor, group)
        except OSError:  # the terminal, or the group, is gone
            return False
        self._is_lent = True
        return True

    def take_back(self) -> bool:
        """Take the terminal back; return True if it was lent."""
        if not self._is_lent or self._descriptor is None:
            return False
        self._is_lent = False
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # from the background, it would stop us
        try:
            with contextlib.suppress(OSError):  # the terminal is gone
                os.tcsetpgrp(self._descriptor, os.getpgrp())
        finally:
            signal.signal(signal.SIGTTOU, before)
        return True

    def close(self) -> None:
        self.take_back()
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
