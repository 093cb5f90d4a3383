"""Forks of this process: the objects that they close at once, and the memory that this process retains for them."""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol


class Closeable(Protocol):
    """Owner of threads or file descriptors. `close` may be called twice."""

    def close(self) -> None: ...


class _Fork:
    """Fork of this process, its own forks, and the memory that they may read."""

    def __init__(self, memory: list[Any]) -> None:
        self.memory = memory
        self._read, self._write = os.pipe()

    def __del__(self) -> None:
        os.close(self._read)

    def in_parent(self) -> None:
        os.close(self._write)

    @property
    def lives(self) -> bool:
        """True if any of them still runs this program.

        No process closes the write end there, so the system does when they end or run another program.
        """
        ended = select.poll()
        ended.register(self._read, 0)
        return not ended.poll(0)


_to_close: weakref.WeakSet[Closeable] = weakref.WeakSet()
_kept: tuple[int, tuple[Closeable, ...]] | None = None
"""Thread that forks a child of Headrace's own, and the objects that the child leaves open."""
_starting = threading.Lock()
_shared: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
"""Memory by identity: arrays have no hash."""
_forks: set[_Fork] = set()
_forking = threading.local()


def close_in_forks(thing: Closeable) -> None:
    """Close `thing` in every fork of this process at once, except a fork made under `kept_by_fork`.

    A descriptor held there would hide this process's end from processes that wait for it.
    """
    _to_close.add(thing)


def keep_for_forks(memory: Any) -> None:
    """Retain `memory`, which forks share without a copy, until every fork made during its lifetime has ended.

    Otherwise this process would reuse it while the fork still reads it. Forks under `kept_by_fork` read none.
    """
    _shared[id(memory)] = memory


def forget_ended_forks() -> None:
    """Release the memory of forks that have ended, at two system calls for each fork that has not."""
    for fork in list(_forks):
        if not fork.lives:
            _forks.discard(fork)


@contextmanager
def kept_by_fork(*things: Closeable) -> Iterator[None]:
    """Leave these open in a fork that this thread makes meanwhile: it is a child of Headrace's own."""
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
    shared = [memory for each in _shared.valuerefs() if (memory := each()) is not None]
    if shared and _kept_here() is None:
        _forking.fork = _Fork(shared)
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
    _shared = weakref.WeakValueDictionary()  # these are the parent's, which retains them
    _forks.clear()
    _forking.fork = None


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
