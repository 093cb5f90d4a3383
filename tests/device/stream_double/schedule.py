"""Seeded schedule of host threads, and of how far the device is when the host asks."""

from __future__ import annotations

import threading
from random import Random

LONGEST_PAUSE_S = 0.002
"""Limit of a pause, for a thread that the others wait for."""
SHARE = 0.2
"""Share of points at which a thread lets the others go ahead."""


class Schedule:
    """Schedule by a seed: at some points a thread pauses until others have passed a few."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._passed = 0
        self._moved = threading.Condition()
        self._own = threading.local()

    def point(self) -> None:
        """Pass a point; called between operations, without any lock."""
        random = self._random()
        pauses, others = random.random() < SHARE, random.randint(1, 5)
        with self._moved:
            self._passed += 1
            self._moved.notify_all()
            if pauses:
                until = self._passed + others
                self._moved.wait_for(lambda: self._passed >= until, LONGEST_PAUSE_S)

    def is_done(self) -> bool:
        """Draw whether the device has finished what a thread asks about."""
        return self._random().random() < 0.5

    def _random(self) -> Random:
        """Return the draws of the calling thread, which do not depend on other threads'."""
        if not hasattr(self._own, "random"):
            self._own.random = Random(f"{self._seed} {threading.current_thread().name}")
        random: Random = self._own.random
        return random
