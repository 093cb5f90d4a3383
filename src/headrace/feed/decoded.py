"""`Decoded`: a batch as the core left it, on its way through the Python stages."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.loader import user_functions
from headrace.loader.recipe import Batch
from headrace.plan import BatchPlan


@dataclass
class Decoded:
    """A batch whose fields are made, and what its rows are."""

    dataset: Dataset
    plan: BatchPlan
    key: int
    """Of the epoch's random numbers."""
    samples: NDArray[np.int64]
    """Positions in the dataset."""
    draw_ids: NDArray[np.int64]
    """What random draws are keyed by, beside the passes."""
    passes: NDArray[np.uint32]
    positions: NDArray[np.int64]
    """In the epoch."""
    batch: Batch
    nbytes: int
    """Of its images."""

    def __len__(self) -> int:
        return len(self.samples)

    def name(self, row: int) -> str:
        """Which sample a row is, for an error's text."""
        return (
            f"sample {self.dataset.key(int(self.samples[row]))!r}, epoch {self.plan.epoch}, "
            f"position {int(self.positions[row])}"
        )

    def rng(self, row: int) -> np.random.Generator:
        return user_functions.sample_rng(self.key, draw_id=int(self.draw_ids[row]), pass_=int(self.passes[row]))
