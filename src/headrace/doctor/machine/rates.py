"""Counters that only grow, as what they grew by a second."""

from __future__ import annotations


class Rates:
    """Remembers each counter's last reading. The first reading of a counter gives None, and so does one that went
    back (it began anew) or that was not told."""

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


def ratio(part: float | None, whole: float | None) -> float | None:
    """None where either is unknown, or where nothing happened that could be divided by."""
    return None if part is None or not whole else part / whole


def total(values: list[float | None]) -> float | None:
    """Their sum; None where there are none, or where one is unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
