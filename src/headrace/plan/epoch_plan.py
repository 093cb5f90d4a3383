"""What a feed asks of a plan, whichever kind it is."""

from __future__ import annotations

from typing import Protocol

from headrace.plan.order import BatchPlan, Remainder


class EpochPlan(Protocol):
    """Which samples this rank holds at each step of each epoch. Every rank takes `steps` steps."""

    @property
    def length(self) -> int:
        """Samples of the dataset."""
        ...

    @property
    def batch_size(self) -> int:
        """Samples of a batch per rank; of batches that differ, about their mean."""
        ...

    @property
    def world_size(self) -> int: ...
    @property
    def rank(self) -> int: ...
    @property
    def shuffle(self) -> bool: ...
    @property
    def seed(self) -> int: ...
    @property
    def remainder(self) -> Remainder: ...

    @property
    def global_batch(self) -> int:
        """What a state counts as consumed a step; the same at every world size."""
        ...

    @property
    def grouping(self) -> str:
        """How samples are grouped to batches, in words; "" where each epoch is cut as it comes."""
        ...

    @property
    def steps(self) -> int: ...

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop". Low is good."""
        ...

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap". Low is good."""
        ...

    @property
    def empty_parts(self) -> int:
        """Parts of an epoch's batches that are empty, because a batch has fewer samples than there are ranks."""
        ...

    def batch(self, epoch: int, step: int) -> BatchPlan: ...
    def key(self, epoch: int) -> int: ...
    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]: ...
