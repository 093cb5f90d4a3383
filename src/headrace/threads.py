"""The threads that Headrace owns: how they are known, and how they end before Python does."""

from __future__ import annotations

import atexit
import threading
import weakref
from typing import Protocol

THREAD_PREFIX = "headrace-"
"""Begins the name of every thread of ours, native ones included."""


class Closeable(Protocol):
    def close(self) -> None: ...


_live: weakref.WeakSet[Closeable] = weakref.WeakSet()


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
