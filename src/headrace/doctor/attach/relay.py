"""The command's standard output and error, passed through so that their last lines are known."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import termios
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

LINES = 50
LINE_BYTES = 4000
READ_BYTES = 1 << 16

OnLine = Callable[[str], None]


class LastLines:
    """The newest lines of what was written, as a terminal would show them: of a line that a progress bar overwrote,
    what it wrote last."""

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
        """Those of all streams, in the order in which they ended; then what has not ended."""
        return [*self._lines, *(_shown(rest) for rest in self._open.values() if rest)][-LINES:]


def _shown(line: bytes) -> str:
    return line.rstrip(b"\r").rpartition(b"\r")[2][-LINE_BYTES:].decode("utf-8", "replace")


@dataclass
class _Stream:
    """One way from the command to a descriptor of ours."""

    number: int
    reader: int
    writer: int
    """The command's end; closed here once it has it."""
    is_terminal: bool


class Relay:
    """Where ours is a terminal the command gets one, of the same size, so that progress bars look as ever; else a
    pipe. Two of ours that are one file get one, which keeps what is written in order.

    With `on_line`, whole lines go to it and nothing to our own descriptors.
    """

    def __init__(self, on_line: OnLine | None = None, targets: tuple[int, int] = (1, 2)) -> None:
        self._writes = on_line is None
        self.last = LastLines(on_line)
        self._streams: dict[int, _Stream] = {}
        out = self._open(targets[0])
        error = out if _is_same(*targets) else self._open(targets[1])
        self.stdout, self.stderr = out.writer, error.writer

    def readers(self) -> list[int]:
        return list(self._streams)

    def started(self) -> None:
        """The command has its ends: ours are closed, so that a read tells when all of its processes have done so."""
        for writer in {self.stdout, self.stderr}:
            os.close(writer)

    def pump(self, reader: int) -> bool:
        """Passes on what there is. False once there will be no more, or nobody reads us."""
        stream = self._streams[reader]
        try:
            data = os.read(reader, READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:  # EIO: the last of them has closed the terminal
            data = b""
        if data and self._pass_on(stream, data):
            return True
        os.close(reader)  # so that the command sees a closed pipe where it is ours that was closed
        del self._streams[reader]
        return False

    def drain(self) -> None:
        """What is there now, and no more: a process that has detached itself may hold its end for ever."""
        for reader in self.readers():
            os.set_blocking(reader, False)
            while self.pump(reader):
                continue

    def resize(self) -> None:
        """The command's terminals take the size of ours."""
        for stream in self._streams.values():
            if stream.is_terminal:
                _copy_size(stream.number, stream.reader)

    def close(self) -> None:
        for reader in self.readers():
            os.close(reader)
        self._streams.clear()

    def _open(self, target: int) -> _Stream:
        is_terminal = os.isatty(target)
        reader, writer = _terminal_like(target) if is_terminal else os.pipe()
        self._streams[reader] = stream = _Stream(target, reader, writer, is_terminal)
        return stream

    def _pass_on(self, stream: _Stream, data: bytes) -> bool:
        self.last.feed(stream.number, data)
        try:
            while self._writes and data:
                data = data[os.write(stream.number, data) :]
        except OSError:
            return False
        return True


def _terminal_like(target: int) -> tuple[int, int]:
    """A new terminal that passes bytes on unchanged: ours does with them what it does."""
    reader, writer = pty.openpty()
    with contextlib.suppress(termios.error):
        attributes = termios.tcgetattr(target)
        attributes[1] &= ~termios.OPOST
        termios.tcsetattr(writer, termios.TCSANOW, attributes)
    _copy_size(target, reader)
    return reader, writer


def _copy_size(target: int, terminal: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, fcntl.ioctl(target, termios.TIOCGWINSZ, b"\0" * 8))


def _is_same(one: int, other: int) -> bool:
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
