"""Recorded work, one value a batch or a step, free of waiting for cores. Times are microseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from .setup import StageChange

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


@dataclass(frozen=True)
class BatchColumns:
    """Batches that measured steps received, in that order; the first ones of new workers left out."""

    stages: Mapping[str, StageColumns]
    """By `category:label`. `compute` is wall time, which several threads may have made shorter."""
    serialise: Column
    receive: Column
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
        """With the changes of a `Setup`."""
        stages = {name: stage.changed(_of(name, changes)) for name, stage in self.stages.items()}
        return replace(self, stages=stages)


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
