"""Work in a fork of this process that is killed by SIGKILL: at a given call of a C function, in whatever thread that
comes, or at any moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

from processes import DEADLINE_S


def count_calls(work: Callable[[], object]) -> int:
    """C functions that `work` calls and returns from; not the same each time where it has several threads."""
    read, write = os.pipe()

    def counted() -> None:
        counter = _Counter(None)
        counter.watch(work)
        os.write(write, str(counter.calls).encode())

    assert not _fork(counted)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        return int(file.read())


def is_killed_at_call(work: Callable[[], object], number: int) -> bool:
    """False: it had ended before."""
    return _fork(lambda: _Counter(number).watch(work))


def is_killed_within(work: Callable[[], object], most_s: float, rng: random.Random) -> bool:
    """At a random moment, which may also lie inside of a call. False: it had ended before."""

    def kill(pid: int) -> None:
        time.sleep(rng.uniform(0, most_s))
        os.kill(pid, signal.SIGKILL)

    return _fork(work, kill)


class _Counter:
    def __init__(self, last: int | None) -> None:
        self.calls = 0
        self._last = last

    def watch(self, work: Callable[[], object]) -> None:
        threading.setprofile(self._see)
        sys.setprofile(self._see)
        work()
        sys.setprofile(None)

    def _see(self, frame: Any, event: str, function: Any) -> None:
        if event in ("c_call", "c_return"):
            self.calls += 1
            if self.calls == self._last:
                os.kill(os.getpid(), signal.SIGKILL)


def _fork(work: Callable[[], object], meanwhile: Callable[[int], None] | None = None) -> bool:
    """Whether the fork was killed; it fails the test if it ended otherwise than by itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 on: threads beside a fork
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(int(DEADLINE_S))
            work()
            os._exit(0)
        except BaseException as error:  # nothing of the test run may go on in the child
            os.write(2, repr(error).encode())
            os._exit(1)
    if meanwhile is not None:
        meanwhile(child)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), f"the fork ended with {status}"
    return status == signal.SIGKILL
