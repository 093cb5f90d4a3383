"""How many samples a global batch holds: a given number, or as many as a budget bears."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from headrace.plan.cells import ANY, Ints


class Capacity(Protocol):
    """Samples of a whole global batch, a multiple of `multiple`."""

    @property
    def multiple(self) -> int: ...

    @property
    def alike(self) -> bool:
        """Whether every scale has the same."""
        ...

    def of(self, buckets: Ints, scales: Ints) -> int:
        """For a batch of samples of these buckets that gets any one of these scales; 0 where none fits."""
        ...


@dataclass(frozen=True)
class FixedCapacity:
    """The same number whatever the samples are."""

    samples: int

    @property
    def multiple(self) -> int:
        return self.samples

    @property
    def alike(self) -> bool:
        return True

    def of(self, buckets: Ints, scales: Ints) -> int:
        return self.samples


@dataclass(frozen=True, eq=False)
class BudgetCapacity:
    """As many as cost at most `total` over all ranks, if each is as large as the largest of its cell."""

    total: int
    heights: Ints
    """[buckets, scales]: the greatest height that a member of the bucket has at the scale."""
    widths: Ints
    multiple: int

    @property
    def alike(self) -> bool:
        return all(bool((bound == bound[:, :1]).all()) for bound in (self.heights, self.widths))

    def of(self, buckets: Ints, scales: Ints) -> int:
        return self.total // self.cost(buckets, scales) // self.multiple * self.multiple

    def cost(self, buckets: Ints, scales: Ints) -> int:
        """Of one sample of a batch of these, at the scale where it costs most."""
        chosen = slice(None) if ANY in scales else np.unique(scales)
        heights, widths = (bound[np.unique(buckets)][:, chosen].max(axis=0) for bound in (self.heights, self.widths))
        return int((heights * widths).max())
