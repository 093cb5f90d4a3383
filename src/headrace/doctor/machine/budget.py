"""Readings that cost the machine something, kept to a share of its time."""

from __future__ import annotations


class Budget:
    """Earns `share` of the time that passes, at most `most_s`, and begins full."""

    def __init__(self, share: float, most_s: float, now_s: float) -> None:
        self._share = share
        self._most_s = most_s
        self._left_s = most_s
        self._earned_at_s = now_s

    def earn(self, now_s: float) -> None:
        self._left_s = min(self._left_s + self._share * (now_s - self._earned_at_s), self._most_s)
        self._earned_at_s = now_s

    def spend(self, seconds: float) -> None:
        """What a reading cost is known afterwards: one may overdraw, and the next waits until that is earned."""
        self._left_s -= seconds

    @property
    def is_left(self) -> bool:
        return self._left_s > 0
