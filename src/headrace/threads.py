"""The threads that Headrace owns: how they are known, and how they end before Python does."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Protocol

THREAD_PREFIX = "headrace-"
"""Begins the name of every thread of ours, native ones included."""


class Closeable(Protocol):
    def close(self) -> None: ...


_live: weakref.WeakSet[Closeable] = weakref.WeakSet()


class Origin:
    """The process in which this was made. A look costs no system call, so it may come with every batch."""

    def __init__(self) -> None:
        self._forks = _forks

    @property
    def is_elsewhere(self) -> bool:
        """Whether this process is a fork of that one, so that its threads are not here."""
        return self._forks != _forks


_forks = 0
"""Forks between the first process and this one."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def close_at_exit(owner: Closeable) -> None:
    """Closes `owner` when Python ends, if it is still alive by then: a thread that comes back from native code while
    Python shuts down would take the process with it."""
    _live.add(owner)


def in_own_thread() -> bool:
    """Whether a thread of ours runs this. The garbage collector may close anything in any thread, and one of ours must
    not wait for itself or for another."""
    return threading.current_thread().name.startswith(THREAD_PREFIX)


@atexit.register
def _close_all() -> None:
    for owner in list(_live):
        owner.close()
