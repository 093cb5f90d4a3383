"""Readings of a part of the machine, and rates of its counters."""

from __future__ import annotations

from math import inf
from typing import Any, Protocol


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


Readings = dict[str, float | None]
"""One reading, by column. None if not measured."""


class MachinePart(Protocol):
    """Sampled part of the machine. Its construction, when sampling begins, reads what may be gone at the end."""

    name: str

    def read(self, now_s: float) -> Readings:
        """Return one reading. Columns may appear late or be missing; rates are since the previous reading."""

    def facts(self) -> dict[str, Any]:
        """Return constants, and totals over the run. Called once, when sampling ends."""
