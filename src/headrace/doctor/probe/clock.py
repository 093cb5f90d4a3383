"""One clock for all processes of a diagnosis: microseconds since its origin."""

from __future__ import annotations

import time

from .settings import Settings


class Clock:
    """CLOCK_MONOTONIC is one clock for a whole machine. On another machine, or after another boot, the wall clock
    gives the distance, as well as the two machines agree on it."""

    def __init__(self, settings: Settings) -> None:
        if settings.boot_id == boot_id():
            self._zero_ns = settings.origin_us * 1000
        else:
            since_origin_ns = time.time_ns() - settings.origin_wall_us * 1000
            self._zero_ns = time.monotonic_ns() - since_origin_ns

    def now_us(self) -> int:
        return (time.monotonic_ns() - self._zero_ns) // 1000

    def us(self, monotonic_ns: int) -> int:
        """A reading of time.monotonic_ns() on this clock."""
        return (monotonic_ns - self._zero_ns) // 1000


def boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
