"""The processes of a run's ranks, and which of them are gone."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
DEAD = ("Z", "X")


class Peer(NamedTuple):
    """A process, told apart from a later one of the same number by its start, in clock ticks since boot.

    `home` is the kernel and the PID namespace that the number belongs to.
    """

    host: str
    home: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def own_process() -> Peer:
    pid = os.getpid()
    state = _state_and_start(pid)
    return Peer(socket.gethostname(), _home(), pid, 0 if state is None else state[1])


def is_gone(peer: Peer) -> bool:
    """Whether the process has ended. Of one on another machine nothing is known: False."""
    if peer.home != _home():
        return False
    state = _state_and_start(peer.pid)
    return state is None or state[0] in DEAD or state[1] != peer.started


@cache
def _home() -> str:
    return f"{BOOT_ID.read_text().strip()} {os.readlink('/proc/self/ns/pid')}"


def _state_and_start(pid: int) -> tuple[str, int] | None:
    """None for a process that is not there. See proc(5), /proc/pid/stat: the name in brackets may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])
