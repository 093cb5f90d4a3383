"""Recorded work, one value a batch or a step, free of waiting for cores. Times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.doctor.predict.setup import StageChange

Column = NDArray[np.float64]


@dataclass(frozen=True)
class StageColumns:
    """One stage of making batches."""

    calls: Column
    compute: Column
    wait: Column

    def changed(self, change: StageChange) -> StageColumns:
        if change.call_us is not None:
            return replace(self, compute=self.calls * change.call_us, wait=np.zeros_like(self.wait))
        return replace(self, compute=self.compute * change.cpu, wait=self.wait * change.wait)

    def without_waits(self) -> StageColumns:
        return replace(self, wait=np.zeros_like(self.wait))

    def beyond(self, usual: StageColumns) -> StageColumns:
        """One row: by how much the mean is above the usual one's."""
        pairs = ((self.calls, usual.calls), (self.compute, usual.compute), (self.wait, usual.wait))
        return StageColumns(*(np.maximum(own.mean(keepdims=True) - other.mean(), 0.0) for own, other in pairs))


Stages = Mapping[str, StageColumns]
"""By `category:label`."""


def changed(stages: Stages, changes: Mapping[str, StageChange]) -> Stages:
    """With the changes of a `Setup`."""
    return {name: stage.changed(_of(name, changes)) for name, stage in stages.items()}


@dataclass(frozen=True)
class BatchColumns:
    """Batches that measured steps received, in that order; the first ones of new workers left out."""

    stages: Stages
    """`compute` is wall time, which several threads may have made shorter."""
    serialise: Column
    receive: Column
    held: Column
    """How long receiving waits for the batch's worker, which is at the next one."""
    pin: Column

    def __len__(self) -> int:
        return len(self.serialise)

    @property
    def compute(self) -> Column:
        """In one thread, or in as many as computed at once."""
        return _sum([stage.compute for stage in self.stages.values()], len(self))

    @property
    def wait(self) -> Column:
        return _sum([stage.wait for stage in self.stages.values()], len(self))

    def changed(self, changes: Mapping[str, StageChange]) -> BatchColumns:
        """With the changes of a `Setup`. A worker that computes for a shorter time is waited for as much shorter."""
        after = replace(self, stages=changed(self.stages, changes))
        before_us, after_us = self.compute.mean(), after.compute.mean()
        return replace(after, held=self.held * (after_us / before_us if before_us > 0 else 1.0))


@dataclass(frozen=True)
class StepColumns:
    """Measured steps, in order, without what they waited for."""

    gets: NDArray[np.int64]
    compute: Column
    wait: Column
    device: Column

    def __len__(self) -> int:
        return len(self.gets)


def _of(name: str, changes: Mapping[str, StageChange]) -> StageChange:
    known = changes.get(name)
    return changes.get(name.partition(":")[0], StageChange()) if known is None else known


def _sum(columns: list[Column], rows: int) -> Column:
    return np.sum(columns, axis=0) if columns else np.zeros(rows)
