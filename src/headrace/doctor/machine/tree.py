"""Which processes belong to the command."""

from __future__ import annotations

import os

from headrace.doctor.machine.kernel import Kernel, is_whole
from headrace.doctor.process_stat import Stat, parsed


def stat(kernel: Kernel, pid: int) -> Stat | None:
    """None where the process is gone, or hidden, or is told in a form that is not the kernel's."""
    return parsed(kernel.text(f"/proc/{pid}/stat") or "")


class Tree:
    """The processes below a root, and those that left it: a child whose parent is gone belongs by the process group or
    session that a process of ours leads, or because it was given to this process, which adopts the command's orphans
    (`attach.processes`). Each process is looked at once, so that a machine with thousands costs no more than their
    list; a foreign one cannot become ours."""

    def __init__(self, kernel: Kernel, root: int) -> None:
        self._kernel = kernel
        self._root = root
        self._ours = {root}
        self._foreign: set[int] = set()

    def scan(self) -> set[int]:
        """The pids that belong and are listed now. One that is no longer listed is forgotten, as its number may go to
        another command's process, but after its orphans have been told by it."""
        listed = {int(name) for name in self._kernel.names("/proc") if is_whole(name)}
        self._foreign &= listed
        new = {pid: seen for pid in listed - self._ours - self._foreign if (seen := stat(self._kernel, pid))}
        while found := {pid for pid, seen in new.items() if self._belongs(seen)}:
            self._ours |= found
            new = {pid: seen for pid, seen in new.items() if pid not in found}
        self._foreign |= set(new)
        self._ours &= listed | {self._root}
        return self._ours & listed

    def _belongs(self, seen: Stat) -> bool:
        is_adopted = seen.parent == os.getpid() and seen.group != os.getpgrp()
        return is_adopted or bool({seen.parent, seen.group, seen.session} & self._ours)
