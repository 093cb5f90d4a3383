"""The command's process group."""

from __future__ import annotations

import contextlib
import os
import subprocess


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
