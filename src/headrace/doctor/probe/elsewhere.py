"""Batches that other threads than the training thread received, until it takes them over."""

from __future__ import annotations

from collections import deque
from threading import get_ident

from .training.step_records import Given

MOST = 1024
MOST_HELD = 128
"""Of those that are expected in the training thread yet."""


class Elsewhere:
    """Filled by any thread, emptied by the training thread alone: each of its calls is one operation of a deque."""

    def __init__(self) -> None:
        self._batches: deque[Given] = deque(maxlen=MOST)
        self._most_ahead = 0
        self._newest: Given | None = None
        self.threads: set[int] = set()
        """Those that received a batch."""
        self.is_handed_over = False
        """Whether the batches come to the training thread in a way that is seen."""

    def add(self, batch: Given) -> None:
        """The calling thread has received it."""
        self._batches.append(batch)
        self._most_ahead = max(self._most_ahead, len(self._batches))
        self._newest = batch
        self.threads.add(get_ident())

    def is_far_ahead(self) -> bool:
        """Whether as many batches wait to be taken over as ever did."""
        return len(self._batches) >= self._most_ahead

    def put_on(self) -> Given | None:
        """The batch that was received last is put where the training thread will take it. None for what is no batch."""
        self.is_handed_over = True
        batch, self._newest = self._newest, None
        return batch

    def oldest(self) -> Given | None:
        return self._batches[0] if self._batches else None

    def take(self, batch: Given) -> bool:
        """Whether the training thread takes it over only now."""
        try:
            self._batches.remove(batch)
        except ValueError:
            return False
        return True

    def left(self, is_over: bool) -> list[Given]:
        """Those that nobody is expected to take over any more, removed; all of them, once it `is_over`."""
        held = MOST_HELD if self.is_handed_over and not is_over else 0
        return [self._batches.popleft() for _ in range(len(self._batches) - held)]
