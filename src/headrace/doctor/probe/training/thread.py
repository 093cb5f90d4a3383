"""The thread that trains."""

from __future__ import annotations

from threading import get_ident

from ..overhead import NOBODY


class TrainingThread:
    """The training thread: the main thread, or the first other thread in which an optimizer steps."""

    __slots__ = ("is_fetching", "observed", "paused")

    def __init__(self, thread: int) -> None:
        self.begin(thread)

    def begin(self, thread: int) -> None:
        self.observed = thread
        """Id of the thread, or NOBODY while paused, so that hooks do nothing."""
        self.paused = NOBODY
        """Id of the thread while paused."""
        self.is_fetching = False
        """True inside a `next()` or `iter()` of a DataLoader."""

    def pause(self) -> None:
        self.observed, self.paused = NOBODY, self.observed

    def go_on(self) -> None:
        self.observed, self.paused = self.paused, NOBODY

    @property
    def is_on(self) -> bool:
        """True while a thread is followed, even if paused."""
        return self.observed != NOBODY or self.paused != NOBODY

    def is_its_thread(self) -> bool:
        """Return True in the training thread, even if paused."""
        return get_ident() in (self.observed, self.paused)

    def is_here(self) -> bool:
        """Return True in the training thread outside of waits for a batch, where its work counts."""
        return get_ident() == self.observed and not self.is_fetching
