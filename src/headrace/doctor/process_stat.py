"""What Linux tells of a process in one line, /proc/PID/stat (man 5 proc_pid_stat)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stat:
    """What is used of it."""

    pid: int
    name: str
    state: str
    parent: int
    group: int
    session: int
    major_faults: int
    user_ticks: int
    system_ticks: int
    waited_ticks: int
    """CPU time of the processes that it has waited for, and of those that these had."""
    threads: int
    started_ticks: int
    """Since the machine began; with the pid, it tells a process from a later one of the same number."""

    @property
    def has_ended(self) -> bool:
        """A zombie counts: its memory is gone, and only its exit status is left to fetch."""
        return self.state in ("Z", "X", "x")


def parsed(text: str) -> Stat | None:
    """None where that is in a form that is not the kernel's."""
    before, opened, after = text.partition("(")
    name, closed, rest = after.rpartition(")")  # the name may hold anything
    words = rest.split()
    if not opened or not closed or len(words) < 20:
        return None
    try:
        pid, *numbers = map(int, [before, *words[1:20]])
    except ValueError:
        return None
    parent, group, session = numbers[:3]
    major, (user, system), waited = numbers[8], numbers[10:12], sum(numbers[12:14])
    return Stat(pid, name, words[0], parent, group, session, major, user, system, waited, numbers[16], numbers[18])
