"""Forks of this process: what they must let go of, and which of them still live."""

from __future__ import annotations

import os
import select
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Closeable(Protocol):
    """Something of this process's own, such as the owner of a file descriptor. `close` may be called twice."""

    def close(self) -> None: ...


class Sharer(Protocol):
    """Shares memory with every fork, in which a write on one side is seen on the other."""

    def forking(self, fork: Fork) -> None:
        """A fork is about to be made, which may look at all that is in use."""
        ...


class Fork:
    """A fork of this process, and what it forks in turn."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()

    def __del__(self) -> None:
        os.close(self._read)

    @property
    def lives(self) -> bool:
        """Whether any of them still runs the program that this process ran. Costs two system calls."""
        return select.select([self._read], [], [], 0)[0] == []

    def in_parent(self) -> None:
        os.close(self._write)

    def in_child(self) -> None:
        """The write end stays open: it is what tells the parent, until this process ends or runs another program."""
        _told_by.append(self)


_held: weakref.WeakSet[Closeable] = weakref.WeakSet()
_sharers: weakref.WeakSet[Sharer] = weakref.WeakSet()
_told_by: list[Fork] = []
_kept: tuple[int, tuple[Closeable, ...]] | None = None
"""The thread that forks a child of ours, and what that child keeps."""
_starting = threading.Lock()
_forking = threading.local()


def close_in_forks(thing: Closeable) -> None:
    """Every fork of this process closes it at once, but for one that is made under `kept_by_fork`: held there, a
    descriptor would hide this process's end from whoever waits for it."""
    _held.add(thing)


def tell_of_forks(sharer: Sharer) -> None:
    """From now on, `sharer` is told before each fork, but for those under `kept_by_fork`."""
    _sharers.add(sharer)


@contextmanager
def kept_by_fork(*things: Closeable) -> Iterator[None]:
    """A fork that this thread makes meanwhile keeps these, and looks at no memory that is shared already."""
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
    if _sharers and _kept_here() is None:
        fork = _forking.fork = Fork()
        for sharer in list(_sharers):
            sharer.forking(fork)


def _in_parent() -> None:
    if _forking.fork is not None:
        _forking.fork.in_parent()
        _forking.fork = None


def _in_child() -> None:
    global _kept, _starting
    if _forking.fork is not None:
        _forking.fork.in_child()
    kept = _kept_here() or ()
    for thing in list(_held):
        if not any(thing is each for each in kept):
            thing.close()
            _held.discard(thing)
    _sharers.clear()
    _kept, _starting = None, threading.Lock()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
