"""Relay output, signals and the terminal between the user and the command."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import socket
import termios
import time
from collections import deque
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple, Protocol

LINES = 50
LINE_BYTES = 4000
READ_BYTES = 1 << 16
TO_GROUP = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGWINCH)
"""Signals from a terminal, which go to every process of the group, as without the doctor."""
TO_COMMAND = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals from people and schedulers, which go to the command's process alone."""
TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Escape sequences that only colour text."""
OnLine = Callable[[str], None]


class BelowOutput(Protocol):
    """Status line of the doctor, below the command's output."""

    def hide(self) -> None:
        """Restore the terminal before the command writes."""

    def wrote(self, stream: int, data: bytes) -> None:
        """Take data that the command has written to one of our descriptors."""

    def look(self) -> None:
        """Show new content, if any. Called several times a second."""


class LastLines:
    """Last lines of output as a terminal shows them: a progress bar's line has its last text."""

    def __init__(self, on_line: OnLine | None = None) -> None:
        self._lines: deque[str] = deque(maxlen=LINES)
        self._open: dict[int, bytes] = {}
        self._on_line = on_line

    def feed(self, stream: int, data: bytes) -> None:
        *whole, rest = (self._open.get(stream, b"") + data).split(b"\n")
        self._open[stream] = rest[-LINE_BYTES:]
        for line in whole:
            self._lines.append(_shown(line))
            if self._on_line is not None:
                self._on_line(self._lines[-1])

    def lines(self) -> list[str]:
        """Return the lines of all streams in the order in which they ended, then the open lines, without colours."""
        lines = [*self._lines, *(_shown(rest) for rest in self._open.values() if rest)][-LINES:]
        return [_COLOURS.sub("", line) for line in lines]


def _shown(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2][-LINE_BYTES:].decode("utf-8", "replace")


class _Stream(NamedTuple):
    """One stream from the command to a descriptor of ours."""

    number: int
    reader: int
    writer: int
    """The command's end, closed here once the command has it."""
    is_terminal: bool


class OutputRelay:
    """Standard output and error of the command, passed on so that their last lines are known.

    If ours is a terminal, the command gets one of the same size, so that progress bars look as usual; otherwise a pipe.
    If both of ours are one file, the command gets one stream, which preserves the order of output. With `on_line`,
    whole lines go to it, and nothing to our own descriptors.
    """

    def __init__(
        self, on_line: OnLine | None = None, targets: tuple[int, int] = (1, 2), below: BelowOutput | None = None
    ) -> None:
        self._writes = on_line is None
        self._below = below
        self.last = LastLines(on_line)
        self._streams: dict[int, _Stream] = {}
        out = self._open(targets[0])
        error = out if os.path.sameopenfile(*targets) else self._open(targets[1])
        self.stdout, self.stderr = out.writer, error.writer

    def readers(self) -> list[int]:
        return list(self._streams)

    def started(self) -> None:
        """Close our copies of the command's ends, so that a read ends once all its processes have closed theirs."""
        for writer in {self.stdout, self.stderr}:
            os.close(writer)

    def pump(self, reader: int) -> bool:
        """Pass on available data. Return False at the end of the stream, or if nobody reads our output."""
        stream = self._streams[reader]
        try:
            data = os.read(reader, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the last process has closed the terminal
            data = b""
        if data and self._pass_on(stream, data):
            return True
        os.close(reader)  # so that the command sees a closed pipe when ours was closed
        del self._streams[reader]
        return False

    def drain(self) -> None:
        """Pass on the data available now: a detached process may keep its end open forever."""
        for reader in self.readers():
            os.set_blocking(reader, False)
            while self.pump(reader):
                continue

    def resize(self) -> None:
        """Give the command's terminals the size of ours."""
        for stream in self._streams.values():
            if stream.is_terminal:
                _copy_size(stream.number, stream.reader)

    def close(self) -> None:
        for reader in self.readers():
            os.close(reader)
        self._streams.clear()

    def _open(self, target: int) -> _Stream:
        is_terminal = os.isatty(target)
        reader, writer = pty.openpty() if is_terminal else os.pipe()
        if is_terminal:
            with contextlib.suppress(termios.error):  # passes bytes through unchanged; our terminal processes them
                attributes = termios.tcgetattr(target)
                attributes[1] &= ~termios.OPOST
                termios.tcsetattr(writer, termios.TCSANOW, attributes)
            _copy_size(target, reader)
        self._streams[reader] = stream = _Stream(target, reader, writer, is_terminal)
        return stream

    def _pass_on(self, stream: _Stream, data: bytes) -> bool:
        self.last.feed(stream.number, data)
        if self._below is not None:
            self._below.hide()
        left = data
        try:
            while self._writes and left:
                left = left[os.write(stream.number, left) :]
        except OSError:
            return False
        if self._below is not None:
            self._below.wrote(stream.number, data)
        return True


def _copy_size(target: int, terminal: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(target, termios.TIOCGWINSZ, b"\0" * 8))


class SignalRelay:
    """Signals to the doctor, each forwarded exactly once, since the command's process group is not ours.

    The second signal to end terminates all processes of the command, the third kills them. A signal that this process
    ignores, as under nohup, stays ignored, here and in the command. Use it as a context manager in the main thread;
    `wake` becomes readable after each signal or end of a child.
    """

    def __init__(
        self,
        signal_group: Callable[[int, int], None],
        signal_all: Callable[[int], None],
        resize: Callable[[], None],
    ) -> None:
        """Store functions to signal the command's group, to signal all its processes, and to resize its terminals."""
        self._signal_group = signal_group
        self._signal_all = signal_all
        self._resize = resize
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
        """Number of requests to end."""
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
        if signum == signal.SIGWINCH:
            self._resize()
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
