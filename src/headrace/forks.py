"""What a forked child must let go of: held there, it would hide this process's end from whoever waits for it."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Closeable(Protocol):
    """Something of this process's own, such as the owner of a file descriptor. `close` may be called twice."""

    def close(self) -> None: ...


_held: weakref.WeakSet[Closeable] = weakref.WeakSet()
_kept: tuple[int, tuple[Closeable, ...]] | None = None
"""The thread that forks a child of ours, and what that child keeps."""
_starting = threading.Lock()


def close_in_forks(thing: Closeable) -> None:
    """Every fork of this process closes it at once, but for one that is made under `kept_by_fork`."""
    _held.add(thing)


@contextmanager
def kept_by_fork(*things: Closeable) -> Iterator[None]:
    """A fork that this thread makes meanwhile keeps these."""
    global _kept
    with _starting:
        _kept = threading.get_ident(), things
        try:
            yield
        finally:
            _kept = None


def _close_held() -> None:
    global _kept, _starting
    kept = _kept[1] if _kept is not None and _kept[0] == threading.get_ident() else ()
    for thing in list(_held):
        if not any(thing is each for each in kept):
            thing.close()
            _held.discard(thing)
    _kept, _starting = None, threading.Lock()


os.register_at_fork(after_in_child=_close_held)
