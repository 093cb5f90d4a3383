"""Threads that Headrace owns: their names, their end, and pools that work through an iterator."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from headrace.system.forks import Closeable

THREAD_PREFIX = "headrace-"
"""Prefix of the name of every thread that Headrace owns, native ones included."""


_live: weakref.WeakSet[Closeable] = weakref.WeakSet()


class ProcessOrigin:
    """Mark of the process that created it. `is_elsewhere` costs no system call, so every batch may check it."""

    def __init__(self) -> None:
        self._forks = _forks

    @property
    def is_elsewhere(self) -> bool:
        """True if this process is a fork of the creating process, so that its threads are missing here."""
        return self._forks != _forks


_forks = 0
"""Forks between the first process and this one."""


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


def close_at_exit(owner: Closeable) -> None:
    """Close `owner` when Python ends, if it is still alive by then.

    A thread that returns from native code while Python shuts down would crash the process.
    """
    _live.add(owner)


def in_own_thread() -> bool:
    """Return True in one of Headrace's own threads.

    The garbage collector may close anything in any thread, and an own thread must not wait for itself or for another.
    """
    return threading.current_thread().name.startswith(THREAD_PREFIX)


@atexit.register
def _close_all() -> None:
    for owner in list(_live):
        owner.close()


T = TypeVar("T")

_TICK_S = 0.1
"""Seconds between two calls of `tick`."""


class Stopped(Exception):  # noqa: N818  # how work ends that is no longer wanted, no error
    """Signal that a thread's work is no longer wanted."""


class Stop:
    """Flag that threads check between two pieces of work, so that all stop soon after one has failed."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def check(self) -> None:
        """Raise Stopped if the flag is set."""
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
    """Call `work` with each item in up to `threads` threads named `name`, and `tick` periodically in this thread.

    `one_is_here`: a single thread is this one, where Ctrl-C also reaches native code; `tick` is then called only
    between two items, so pass False for items that take long.

    It returns once all threads have ended. It raises the first error of any of them, or an exception that arrives here
    meanwhile, such as KeyboardInterrupt; then it sets `stop`, which `work` may check, and begins no further item.
    """
    stop = Stop() if stop is None else stop
    tick = tick or (lambda: None)
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
        pool.wait(lambda: None)
        raise
    if pool.errors:
        raise pool.errors[0]


_NOTHING = object()


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
            self._threads.append(thread)  # first, so that a thread whose start is interrupted is joined, too
            thread.start()

    def wait(self, tick: Callable[[], None]) -> None:
        for thread in self._threads:
            while thread.is_alive():
                thread.join(_TICK_S)
                tick()

    def _run(self) -> None:
        try:
            while True:
                self._stop.check()
                with self._lock:
                    item = next(self._items, _NOTHING)
                if item is _NOTHING:
                    return
                self._work(item)  # type: ignore[arg-type]  # an item then
        except Stopped:
            pass
        except BaseException as error:
            self.errors.append(error)
            self._stop.set()
