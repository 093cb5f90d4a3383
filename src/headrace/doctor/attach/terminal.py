"""Who may read the terminal: the command is in a process group of its own, and gets it when it asks."""

from __future__ import annotations

import contextlib
import os
import signal


class Terminal:
    """The controlling terminal, if there is one. It stays with this process's group, so that Ctrl-C comes here, until
    the command is stopped because it wants to read: then it is lent."""

    def __init__(self) -> None:
        try:
            self._descriptor: int | None = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        except OSError:
            self._descriptor = None
        self._is_lent = False

    def lend(self, group: int) -> bool:
        """False where it is not ours to lend: this process is in the background."""
        try:
            if self._descriptor is None or os.tcgetpgrp(self._descriptor) != os.getpgrp():
                return False
            os.tcsetpgrp(self._descriptor, group)
        except OSError:  # the terminal, or the group, is gone
            return False
        self._is_lent = True
        return True

    def take_back(self) -> bool:
        """Whether it was lent."""
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
