"""Which batches are timed sample by sample."""

from __future__ import annotations

MOST_SHARE = 0.02
"""Of the time of making batches, that timing samples one by one may take."""
FIRST = 20
"""Batches that are in any case: of a short run, all."""
MOST_BETWEEN = 500
"""Batches: however short samples are, some are timed one by one."""


class Pace:
    """All are, where that costs little of their making, and as few as keep it little where samples are short: the
    others are timed as a whole. A batch that took long makes the next one be timed by sample again."""

    def __init__(self) -> None:
        self._made = 0
        self._left = 0

    def is_due(self) -> bool:
        """Whether the next batch is to be timed by sample."""
        return self._made < FIRST or self._left <= 0

    def made(self, wall_ns: int, price_ns: int, is_by_sample: bool) -> None:
        """A batch took so long; to time it by sample costs `price_ns`."""
        self._made += 1
        usual = min(MOST_BETWEEN, int(price_ns / (MOST_SHARE * max(wall_ns, 1))))
        self._left = usual if is_by_sample else min(self._left - 1, usual)
