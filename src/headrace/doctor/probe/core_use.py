"""What a stretch of work used of the cores, beside its wall time."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_SCHEDSTAT = "/proc/thread-self/schedstat"
_LONG_NS = 10_000_000
"""Reading a file of the kernel's takes 6 µs; twice that is little beside work as long as this."""


class Use(NamedTuple):
    """Nanoseconds, since some moment."""

    cpu: int
    """Of all threads of the process."""
    delay: int | None
    """In which the calling thread was ready to run and had no core; None where that was not asked or is not told."""

    def since(self, before: Use) -> Use:
        """Of the stretch between the two, in one thread."""
        delay = None if self.delay is None or before.delay is None else self.delay - before.delay
        return Use(self.cpu - before.cpu, delay)

    def us(self) -> tuple[int, int | None]:
        """As records have it: whole microseconds."""
        return self.cpu // 1000, None if self.delay is None else self.delay // 1000


def use(expected_ns: int) -> Use:
    """Up to now. `expected_ns` is how long the stretch will be, or was, as far as is known."""
    return Use(time.process_time_ns(), _delay_ns() if expected_ns >= _LONG_NS else None)


def _delay_ns() -> int | None:
    """The file is opened anew each time: one kept open would tell of the thread that opened it, also after a fork."""
    try:
        descriptor = os.open(_SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        words = os.read(descriptor, 64).split()
    finally:
        os.close(descriptor)
    return int(words[1]) if len(words) == 3 and any(word != b"0" for word in words) else None
