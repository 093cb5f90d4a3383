"""Plans that cut an epoch's order as it comes: batch by batch, or sample by sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StateError, UsageError
from headrace.plan import order
from headrace.plan.order import UniformPlan
from headrace.plan.state import State, check_same_order


@dataclass(frozen=True, eq=False, kw_only=True)
class SamplePlan:
    """Deals each epoch's order out to the ranks one sample at a time: rank r of n takes positions r, r + n, r + 2n, …

    What all ranks have consumed after as many samples each is then a prefix of the epoch, whatever batches they make
    of them, and any world size and batch size goes on from there. Every rank takes equally many: `remainder` "wrap"
    fills up the last round from the epoch's start, "drop" leaves it out.
    """

    length: int
    world_size: int = 1
    rank: int = 0
    shuffle: bool = True
    seed: int = 0
    remainder: Literal["drop", "wrap"] = "wrap"

    def __post_init__(self) -> None:
        if self.remainder not in ("drop", "wrap"):
            raise UsageError(
                f"remainder: expected 'drop' or 'wrap', which give every rank equally many samples, got "
                f"{self.remainder!r}; a sampler of whole batches (ResumableBatchSampler) also has 'short'"
            )
        UniformPlan(
            length=self.length,
            batch_size=1,
            world_size=self.world_size,
            rank=self.rank,
            shuffle=self.shuffle,
            seed=self.seed,
            remainder=self.remainder,
        )

    @property
    def batch_size(self) -> int:
        return 1

    @property
    def global_batch(self) -> int:
        """The unit that the order is cut in: one sample, at every world size."""
        return 1

    @property
    def grouping(self) -> str:
        """Nothing: samples come one by one."""
        return ""

    @property
    def steps(self) -> int:
        """Samples that each rank takes of an epoch."""
        return self.steps_from(0)

    @property
    def left_out(self) -> int:
        """Samples that an epoch leaves out under "drop". Low is good."""
        return max(0, self.length - self.steps * self.world_size)

    @property
    def repeated(self) -> int:
        """Samples that an epoch takes once more under "wrap". Low is good."""
        return max(0, self.steps * self.world_size - self.length)

    def steps_from(self, consumed: int) -> int:
        """Samples that each rank takes of the rest of an epoch, after `consumed` over all ranks."""
        rest = max(0, self.length - consumed)
        return rest // self.world_size if self.remainder == "drop" else -(-rest // self.world_size)

    def samples(self, epoch: int, consumed: int, start: int, stop: int) -> NDArray[np.int64]:
        """The dataset positions of this rank's samples number `start` to `stop` after the first `consumed`."""
        first = consumed + self.rank
        positions = np.arange(first + start * self.world_size, first + stop * self.world_size, self.world_size)
        return order.samples_at(
            positions % self.length, length=self.length, shuffle=self.shuffle, seed=self.seed, epoch=epoch
        )


def resume_samples(state: State, plan: SamplePlan, *, dataset: str) -> tuple[int, int]:
    """The (epoch, samples consumed over all ranks) from which `plan` goes on.

    Raises StateError where the run that saved had another order, or cut it in whole batches.
    """
    check_same_order(state, plan, dataset=dataset)
    if state.global_batch != 1:
        raise StateError(
            f"state: expected one of a sampler of single samples (global batch 1), got global batch "
            f"{state.global_batch}; load it into a sampler of batches, as the one that saved it"
        )
    if state.samples > plan.length:
        raise StateError(
            f"state['samples']: expected at most the {plan.length} samples of an epoch, got {state.samples}; pass the "
            "saved dict unchanged"
        )
    return state.epoch, state.samples
