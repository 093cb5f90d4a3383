"""Next uses of samples on a node according to the plan, and the samples that a full cache drops by them.

A node of several reads another part of the dataset each epoch. The plan shows when the node reads each sample again, so
that a cache stores the samples needed first. This is Belady's rule (IBM Systems Journal 5(2), 1966), which requires
knowledge of the future.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.plan.step_views import Ints
from headrace.plan.uniform_plan import UniformPlan

NEVER = np.iinfo(np.int64).max
"""Step of a sample that the node does not read again within the epochs ahead."""

EPOCHS_AHEAD_PER_NODE = 2
"""Epochs to look ahead per node: with a cache of half the data on each, further epochs change nothing."""
_MOST_EPOCHS_AHEAD = 128

Uses: TypeAlias = NDArray[Any]
"""Samples or steps as int32, or int64 if there are too many."""


@dataclass(frozen=True)
class NodeRanks:
    """Ranks `first` to `stop` - 1 of a run, which share a node and its cache."""

    first: int
    stop: int

    def nodes(self, world_size: int) -> int:
        """Return how many such nodes the run has."""
        return -(-world_size // (self.stop - self.first))


def can_plan_uses(plan: UniformPlan) -> bool:
    """Return True if next uses are worth planning: each sample comes once per epoch, in an order that changes."""
    return plan.draws is None and plan.shuffle


class NextUses:
    """Steps at which a node reads each sample next, counted over all epochs: step s of epoch e is e * steps + s.

    It holds the samples of the epochs ahead, and two uses of each sample of the dataset: eight bytes each below two
    billion samples and steps ahead.
    """

    def __init__(self, plan: UniformPlan, node: NodeRanks, *, base_ids: Ints | None, count: int) -> None:
        """Cover the part of these ranks. Samples are identified by base id, from 0 to `count` - 1."""
        self._plan, self._node = plan, node
        self._base_ids, self._count = base_ids, count
        self._ahead = min(_MOST_EPOCHS_AHEAD, EPOCHS_AHEAD_PER_NODE * node.nodes(plan.world_size))
        most = max(count, (self._ahead + 1) * plan.steps)
        self._type = np.int32 if most < np.iinfo(np.int32).max else np.int64
        self._far = np.iinfo(self._type).max
        # Replaced as a whole: two passes of a loader may call at once, and either's result is valid.
        self._epochs: dict[int, tuple[Uses, Uses]] = {}
        self._now: tuple[int, Uses, Uses] | None = None

    @property
    def step_samples(self) -> int:
        """Samples that the node reads in a full step."""
        return self._plan.batch_size * (self._node.stop - self._node.first)

    def of(self, base_ids: Ints, epoch: int, step: int) -> Ints:
        """Return the step of the next use of samples after this one; NEVER for a sample not read soon."""
        this_epoch, later = (column[base_ids].astype(np.int64) for column in self._of_epoch(epoch))
        found = np.where(this_epoch > step, this_epoch, later)
        return np.where(found == self._far, NEVER, found + epoch * self._plan.steps)

    def _of_epoch(self, epoch: int) -> tuple[Uses, Uses]:
        now = self._now
        if now is None or now[0] != epoch:
            self._now = now = (epoch, *self._uses(epoch))
        return now[1:]

    def _uses(self, epoch: int) -> tuple[Uses, Uses]:
        """Return the step of each sample's use in `epoch`, or -1, and of its first later use, or the largest int.

        Both count from the first step of `epoch` on.
        """
        known = self._epochs
        self._epochs = epochs = {
            each: known.get(each) or self._part(each) for each in range(epoch, epoch + self._ahead + 1)
        }
        later = np.full(self._count, self._far, self._type)
        for ahead in range(self._ahead, 0, -1):
            samples, steps = epochs[epoch + ahead]
            later[samples] = steps + self._type(ahead * self._plan.steps)
        this_epoch = np.full(self._count, -1, self._type)
        samples, steps = epochs[epoch]
        this_epoch[samples] = steps
        return this_epoch, later

    def _part(self, epoch: int) -> tuple[Uses, Uses]:
        """Return the node's reads in an epoch, base ids and steps: last steps first, so that the first step wins."""
        found = list(self._reads(epoch))
        samples, steps = (np.concatenate(column) for column in zip(*found, strict=True)) if found else _NOTHING
        order = np.argsort(-steps, kind="stable")
        ids = samples if self._base_ids is None else self._base_ids[samples]
        return ids[order].astype(self._type), steps[order].astype(self._type)

    def _reads(self, epoch: int) -> Iterator[tuple[Ints, Ints]]:
        plan, node = self._plan, self._node
        if plan.window is not None:
            for rank in range(node.first, node.stop):
                for group in replace(plan, rank=rank).reads(epoch, 0):
                    yield group.samples, group.steps
            return
        whole, size = plan.length // plan.global_batch, plan.batch_size * (node.stop - node.first)
        steps = np.repeat(np.arange(min(whole, plan.steps), dtype=np.int64), size)
        offsets = np.tile(np.arange(size, dtype=np.int64), min(whole, plan.steps)) + node.first * plan.batch_size
        yield plan.shuffled(steps * plan.global_batch + offsets, count=plan.length, epoch=epoch), steps
        for step in range(whole, plan.steps):
            for rank in range(node.first, node.stop):
                samples = replace(plan, rank=rank).batch(epoch, step).samples
                yield samples, np.full(len(samples), step, np.int64)


_NOTHING = np.empty(0, np.int64), np.empty(0, np.int64)


@dataclass(frozen=True)
class Eviction:
    """Samples to drop, and the next use from which on a full cache stores no more samples."""

    samples: Ints
    keep_before: int


def choose_eviction(kept: Ints, taken_bytes: NDArray[np.integer[Any]], next_use: Ints, *, free_bytes: int) -> Eviction:
    """Return the samples of `kept` needed last that free `free_bytes` together, or all.

    If nothing has to be freed, samples stored from now on must be needed before the last of `kept`.
    """
    if not len(kept):
        return Eviction(kept, NEVER)
    last_first = np.argsort(-next_use, kind="stable")
    freed = np.cumsum(taken_bytes[last_first], dtype=np.int64)
    count = min(len(kept), int(np.searchsorted(freed, free_bytes)) + 1) if free_bytes > 0 else 0
    return Eviction(kept[last_first[:count]], int(next_use[last_first[max(0, count - 1)]]))
