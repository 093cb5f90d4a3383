"""The kernel's files, parsed with any field possibly missing, and rates of its counters."""

from __future__ import annotations

import os
from math import inf
from typing import Any, NamedTuple, Protocol

import psutil

from headrace.system import Mount, is_whole, read_text

MOST_CORES = 1 << 16
"""Exceeds the limit of any kernel."""


class Space(NamedTuple):
    total_bytes: int
    used_bytes: int


class Kernel:
    """The only access to the machine, so that a test can simulate any machine.

    Absent or forbidden data is None or empty: containers hide files, and processes end while they are read.
    """

    def text(self, path: str) -> str | None:
        return read_text(path)

    def names(self, folder: str) -> list[str]:
        try:
            return os.listdir(folder)
        except OSError:
            return []

    def link(self, path: str) -> str | None:
        try:
            return os.readlink(path)
        except OSError:
            return None

    def space(self, path: str) -> Space | None:
        try:
            usage = psutil.disk_usage(path)
        except OSError:
            return None
        return Space(usage.total, usage.used)


def stripped(text: str | None) -> str | None:
    """Return the stripped text, or None if it is empty."""
    return (text or "").strip() or None


def span(text: str) -> set[int]:
    """Return the numbers of a list such as `0-3,8`."""
    numbers: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if is_whole(first) and is_whole(last or first) and int(last or first) < MOST_CORES:
            numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def mount_of(path: str, mounted: list[Mount]) -> Mount | None:
    """Return the mount that contains a path; the later of two at the same mount point."""
    holding = [mount for mount in mounted if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


class Rates:
    """Growth of counters per second, since the last reading of each.

    The first reading of a counter gives None, and so does a decrease (the counter restarted) or an unknown value.
    """

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, float]] = {}

    def per_second(self, name: str, value: float | None, now_s: float) -> float | None:
        last = self._last.pop(name, None)
        if value is None:
            return None
        self._last[name] = (now_s, value)
        if last is None or now_s <= last[0] or value < last[1]:
            return None
        return (value - last[1]) / (now_s - last[0])


def ratio(part: float | None, whole: float | None, *, most: float = inf) -> float | None:
    """Return the quotient, at most `most`; None if either value is unknown, or the divisor is 0."""
    return None if part is None or not whole else min(part / whole, most)


def scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def total(values: list[float | None]) -> float | None:
    """Return the sum; None if there are no values, or any is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


Readings = dict[str, float | None]
"""One reading, by column. None if not measured."""


class MachinePart(Protocol):
    """Sampled part of the machine. Its construction, when sampling begins, reads what may be gone at the end."""

    name: str

    def read(self, now_s: float) -> Readings:
        """Return one reading. Columns may appear late or be missing; rates are since the previous reading."""

    def facts(self) -> dict[str, Any]:
        """Return constants, and totals over the run. Called once, when sampling ends."""
