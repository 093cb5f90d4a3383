"""Which processes belong to the command."""

from __future__ import annotations

import os
from dataclasses import dataclass

from headrace.doctor.machine.kernel import Kernel, is_whole


@dataclass(frozen=True)
class Stat:
    """What is used of /proc/PID/stat (man 5 proc)."""

    name: str
    state: str
    parent: int
    group: int
    session: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    threads: int
    started_ticks: int
    """Since the machine began; with the pid, it tells a process from a later one of the same number."""

    @property
    def has_ended(self) -> bool:
        """A zombie counts: its memory is gone, and only its exit status is left to fetch."""
        return self.state in ("Z", "X", "x")


def stat(kernel: Kernel, pid: int) -> Stat | None:
    """None where the process is gone, or hidden, or is told in a form that is not the kernel's."""
    text = kernel.text(f"/proc/{pid}/stat") or ""
    opened, closed = text.find("("), text.rfind(")")
    words = text[closed + 1 :].split()
    if opened < 0 or closed < 0 or len(words) < 20:
        return None
    try:
        numbers = [int(word) for word in words[1:20]]
    except ValueError:
        return None
    parent, group, session = numbers[:3]
    major, (user, system) = numbers[8], numbers[10:12]
    return Stat(
        text[opened + 1 : closed], words[0], parent, group, session, major, user, system, numbers[16], numbers[18]
    )


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
