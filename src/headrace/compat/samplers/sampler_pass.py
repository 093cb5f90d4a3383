"""One run of a sampler through an epoch, and who has counted how much of it."""

from __future__ import annotations

import weakref
from dataclasses import dataclass


@dataclass(eq=False)
class SamplerPass:
    """A run through the rest of an epoch. Its steps are what the sampler yields: lists of indices, or indices."""

    epoch: int
    start: int
    """Samples of the epoch that came before, over all ranks."""
    steps: int
    """Steps from there to the epoch's end."""
    drawn: int = 0
    """Steps that the DataLoader has taken, prefetched ones included."""
    received: int | None = None
    """Steps that the training loop has, or None where nobody counts them."""
    ended: bool = False
    tracker: weakref.ref[object] | None = None
    """Counts `received`, as long as it lives."""

    @property
    def taken(self) -> int:
        """The best count there is: of what was received, else of what was drawn."""
        return self.drawn if self.received is None else self.received

    @property
    def known(self) -> bool:
        """Whether `taken` is what the training loop has."""
        return self.received is not None or self.drawn == 0

    @property
    def finished(self) -> bool:
        return self.ended_after(self.taken)

    @property
    def awaits_draw(self) -> bool:
        """Whether it is tracked and its DataLoader has yet to draw from it, which some do at the first batch only."""
        return self.tracker is not None and self.tracker() is not None and self.drawn == 0

    def ended_after(self, taken: int) -> bool:
        return self.ended or 0 < self.steps == taken

    def next_position(self) -> tuple[int, int]:
        """(epoch, start) of the pass after this one: an epoch that was broken off starts again."""
        if self.finished:
            return self.epoch + 1, 0
        return self.epoch, 0 if self.taken else self.start
