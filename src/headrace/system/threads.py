"""Threads that Headrace owns: their names, their end, and pools that work through an iterator."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

# -- from threads.py: The threads that Headrace owns: how they are known, and how they end before Python does.


THREAD_PREFIX = "headrace-"
"""Begins the name of every thread of ours, native ones included."""


class ThreadOwner(Protocol):
    def close(self) -> None: ...


_live: weakref.WeakSet[ThreadOwner] = weakref.WeakSet()


class ProcessOrigin:
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


def close_at_exit(owner: ThreadOwner) -> None:
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


# -- from workers.py: Threads that take work from one iterator until it ends, one of them fails, or they are told to
# stop.


T = TypeVar("T")

_TICK_S = 0.1
"""Between two looks at how far they are."""


class Stopped(Exception):  # noqa: N818  # how work ends that is no longer wanted, no error
    """Raised in a thread whose work is not wanted any more."""


class Stop:
    """Asked between two pieces of work, so that no thread goes on for long when another has failed."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raises Stopped."""
        if self._event.is_set():
            raise Stopped


def work_through(
    items: Iterable[T],
    work: Callable[[T], None],
    *,
    name: str,
    threads: int,
    one_is_here: bool = True,
    stop: Stop | None = None,
    tick: Callable[[], None] | None = None,
) -> None:
    """Calls `work` with each item in up to `threads` threads of that `name` side by side, and `tick` every now and then
    in this one.

    `one_is_here`: if there is to be but one thread it is this one, where Ctrl-C reaches native code, too; `tick` is
    then called between two items only, so items that take long had better have a thread of their own.

    Returns once all threads have ended. Raises the first error of any of them, or what comes here meanwhile, such as
    KeyboardInterrupt; then `stop` is set, which `work` may look at, and nothing more is begun.
    """
    stop = Stop() if stop is None else stop
    tick = tick or _nothing
    if threads == 1 and one_is_here:
        for item in items:
            stop.check()
            work(item)
            tick()
        return
    pool = _Pool(iter(items), work, stop)
    try:
        pool.start(name, threads)
        pool.wait(tick)
    except BaseException:
        stop.set()
        pool.wait(_nothing)
        raise
    if pool.errors:
        raise pool.errors[0]


def _nothing() -> None:
    pass


class _Pool(Generic[T]):
    def __init__(self, items: Iterator[T], work: Callable[[T], None], stop: Stop) -> None:
        self._items = items
        self._work = work
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stop = stop
        self.errors: list[BaseException] = []

    def start(self, name: str, threads: int) -> None:
        # Daemons, so that a second Ctrl-C ends a process whose first one waits for native code.
        for number in range(threads):
            thread = threading.Thread(target=self._run, name=f"{THREAD_PREFIX}{name}-{number}", daemon=True)
            self._threads.append(thread)  # first, so that one is waited for whose start is interrupted
            thread.start()

    def wait(self, tick: Callable[[], None]) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK_S)
                tick()

    def _run(self) -> None:
        try:
            for item in self._taken():
                self._work(item)
        except Stopped:
            pass
        except BaseException as error:
            self.errors.append(error)
            self._stop.set()

    def _taken(self) -> Iterator[T]:
        while True:
            self._stop.check()
            with self._lock:
                try:
                    item = next(self._items)
                except StopIteration:
                    return
            yield item
