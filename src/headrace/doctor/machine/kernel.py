"""The kernel's files, parsed where any field may be missing, and rates of its counters."""

from __future__ import annotations

import os
from math import inf
from typing import Any, NamedTuple, Protocol

import psutil

from headrace.system import Mount, is_whole, read_text

MOST_CORES = 1 << 16
"""More than any kernel is built for."""


class Space(NamedTuple):
    """Size of a file system."""

    total_bytes: int
    used_bytes: int


class Kernel:
    """The one way to the machine, so that a test can be any machine.

    What is absent or forbidden is None or empty: containers hide files, and processes end while they are read.
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
    """Return the text without the space around it; None where nothing is left."""
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
    """Return the file system that a path lies in; where two are mounted at one place, the later."""
    holding = [mount for mount in mounted if path == mount.point or path.startswith(mount.point.rstrip("/") + "/")]
    return max(reversed(holding), key=lambda mount: len(mount.point), default=None)


class Rates:
    """Growth of counters a second, since each one's last reading.

    The first reading of a counter gives None, and so does one that went back (it began anew) or that is unknown.
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
    """Return the quotient, or `most`; None where either is unknown, or where nothing happened to divide by."""
    return None if part is None or not whole else min(part / whole, most)


def scaled(value: float | None, factor: float) -> float | None:
    """Return the value times the factor; None where it is unknown."""
    return None if value is None else value * factor


def total(values: list[float | None]) -> float | None:
    """Return the sum; None where there are no values, or where one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


Readings = dict[str, float | None]
"""One reading, by column. None is what was not measured."""


class MachinePart(Protocol):
    """One thing that is sampled. It is made when sampling begins, and reads then what may be gone at the end."""

    name: str

    def read(self, now_s: float) -> Readings:
        """Return one reading. Columns may come late and stay away; rates are since the reading before."""

    def facts(self) -> dict[str, Any]:
        """Return what does not change, and totals over the run. Called once, when sampling ends."""
