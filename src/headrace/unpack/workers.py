"""Threads that take work from one iterator, until it ends, one of them fails, or they are told to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import TypeVar

from headrace.threads import THREAD_PREFIX

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
    items: Iterable[T], work: Callable[[T], None], *, threads: int, stop: Stop, tick: Callable[[], None]
) -> None:
    """Calls `work` with each item, in `threads` threads side by side, and `tick` every now and then in this one.

    Returns once all threads have ended. Raises the first error of any of them, and whatever comes here meanwhile, such
    as KeyboardInterrupt; `stop` is set then.
    """
    iterator, lock = iter(items), threading.Lock()
    errors: list[BaseException] = []

    def take() -> T | None:
        with lock:
            return next(iterator, None)

    def run() -> None:
        try:
            while (item := take()) is not None:
                stop.check()
                work(item)
        except Stopped:
            pass
        except BaseException as error:
            errors.append(error)
            stop.set()

    pool = [threading.Thread(target=run, name=f"{THREAD_PREFIX}unpack-{n}", daemon=True) for n in range(threads)]
    try:
        for thread in pool:
            thread.start()
        for thread in pool:
            while thread.is_alive():
                thread.join(_TICK_S)
                tick()
    except BaseException:
        stop.set()
        for thread in pool:
            if thread.ident is not None:
                thread.join()
        raise
    if errors:
        raise errors[0]
