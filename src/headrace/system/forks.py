"""Forks of this process: what they close at once, and what this process keeps for them."""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Closeable(Protocol):
    """Something of this process's own, such as the owner of a file descriptor. `close` may be called twice."""

    def close(self) -> None: ...


class _Fork:
    """A fork of this process and all that it forks in turn, with what they may look at."""

    def __init__(self, sees: list[Any]) -> None:
        self.sees = sees
        self._read, self._write = os.pipe()

    def __del__(self) -> None:
        os.close(self._read)

    def in_parent(self) -> None:
        os.close(self._write)

    @property
    def lives(self) -> bool:
        """Whether any of them still runs this program: nobody closes the write end there, so the system does when they
        end or run another."""
        ended = select.poll()
        ended.register(self._read, 0)
        return not ended.poll(0)


_to_close: weakref.WeakSet[Closeable] = weakref.WeakSet()
_kept: tuple[int, tuple[Closeable, ...]] | None = None
"""The thread that forks a child of ours, and what that child keeps."""
_starting = threading.Lock()
_shared: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""By identity: arrays have no hash."""
_forks: set[_Fork] = set()
_forking = threading.local()


def close_in_forks(thing: Closeable) -> None:
    """Every fork of this process closes it at once, but for one that is made under `kept_by_fork`: held there, a
    descriptor would hide this process's end from whoever waits for it."""
    _to_close.add(thing)


def keep_for_forks(memory: Any) -> None:
    """Memory that forks do not copy but share: each that is made while it is alive keeps it so, for as long as that
    fork lives. Else it would be used for something else here, under the fork's eyes. Forks under `kept_by_fork` look
    at none."""
    _shared[id(memory)] = memory


def forget_ended_forks() -> None:
    """Lets go of what was kept for forks that have ended. Two system calls for each that has not."""
    for fork in list(_forks):
        if not fork.lives:
            _forks.discard(fork)


@contextmanager
def kept_by_fork(*things: Closeable) -> Iterator[None]:
    """A fork that this thread makes meanwhile is a child of ours, which keeps these."""
    global _kept
    with _starting:
        _kept = threading.get_ident(), things
        try:
            yield
        finally:
            _kept = None


def _kept_here() -> tuple[Closeable, ...] | None:
    return _kept[1] if _kept is not None and _kept[0] == threading.get_ident() else None


def _before() -> None:
    _forking.fork = None
    forget_ended_forks()
    sees = [memory for each in _shared.valuerefs() if (memory := each()) is not None]
    if sees and _kept_here() is None:
        _forking.fork = _Fork(sees)
        _forks.add(_forking.fork)


def _in_parent() -> None:
    if _forking.fork is not None:
        _forking.fork.in_parent()
        _forking.fork = None


def _in_child() -> None:
    global _kept, _starting, _shared
    kept = _kept_here() or ()
    for thing in list(_to_close):
        if not any(thing is each for each in kept):
            thing.close()
            _to_close.discard(thing)
    _kept, _starting = None, threading.Lock()
    _shared = weakref.WeakValueDictionary()  # the parent's, and it keeps it
    _forks.clear()
    _forking.fork = None


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
