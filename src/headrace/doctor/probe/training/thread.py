"""The thread that trains."""

from __future__ import annotations

from threading import get_ident

from ..overhead import NOBODY


class TrainingThread:
    """The thread that trains: the main one, or else the first other one in which an optimizer steps."""

    __slots__ = ("is_fetching", "observed", "paused")

    def __init__(self, thread: int) -> None:
        self.begin(thread)

    def begin(self, thread: int) -> None:
        self.observed = thread
        """Its identity; nobody's while it is paused, so that hooks do nothing."""
        self.paused = NOBODY
        """Its identity while it is paused."""
        self.is_fetching = False
        """Whether it is in a `next()` or `iter()` of a DataLoader."""

    def pause(self) -> None:
        """Let it alone for a while."""
        self.observed, self.paused = NOBODY, self.observed

    def go_on(self) -> None:
        self.observed, self.paused = self.paused, NOBODY

    @property
    def is_on(self) -> bool:
        """True while a thread is followed, be it paused."""
        return self.observed != NOBODY or self.paused != NOBODY

    def is_its_thread(self) -> bool:
        """Tell whether the calling thread is the training thread, be it paused."""
        return get_ident() in (self.observed, self.paused)

    def is_here(self) -> bool:
        """Tell whether the calling thread is the training thread, and waits for no batch: what it does counts."""
        return get_ident() == self.observed and not self.is_fetching
