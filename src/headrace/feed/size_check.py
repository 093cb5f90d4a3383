"""Whether images are what was expected of them: as large as the plan of a batch took them for, and of 8 bits."""

from __future__ import annotations

import warnings
from collections.abc import Container, Sequence

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.plan import BatchPlan


class SizeCheck:
    """Warns once of an image whose size is not what a column, or an earlier look at its header, said: it is cut, or
    filled up, to a shape that followed from that."""

    def __init__(self, dataset: Dataset, field: str) -> None:
        self._dataset = dataset
        self._field = field
        self._warned = False

    def look(self, plan: BatchPlan, found: NDArray[np.int32], besides: Container[int]) -> None:
        """`found`: (width, height) of the batch's images; rows in `besides` have none."""
        if plan.view is None or plan.view.sources is None or self._warned:
            return
        planned = plan.view.sources
        odd = np.flatnonzero((planned[:, 0] > 0) & (planned != found[:, ::-1]).any(axis=1))
        row = next((row for row in odd.tolist() if row not in besides), None)
        if row is None:
            return
        self._warned = True
        (height, width), (wide, high) = planned[row].tolist(), found[row].tolist()
        warnings.warn(
            f"field {self._field!r}: expected sample {self._dataset.key(int(plan.samples[row]))!r} to be {height} x "
            f"{width} (height x width), as the dataset's columns or an earlier look at it said, got {high} x {wide}; "
            "it is cut or filled up to the shape planned for its batch. Correct or leave out columns height and width",
            stacklevel=2,
        )


class DepthCheck:
    """Warns once of images of 16 bits a channel that are read as 8."""

    def __init__(self, dataset: Dataset, fields: Sequence[str]) -> None:
        """`fields`: the images that are read as 8, unless that was asked for."""
        self._dataset = dataset
        self._fields = fields
        self._warned = False

    def look(self, narrowed: int) -> None:
        """`narrowed`: how many of a batch's were."""
        if not narrowed or not self._fields or self._warned:
            return
        self._warned = True
        names = ", ".join(map(repr, self._fields))
        warnings.warn(
            f"field {names}: expected images of 8 bits a channel, got some of 16 in {self._dataset.table.source}: only "
            'their high byte is read. Image(channels=…, dtype="uint16") or "float32" keeps all 16 bits, and '
            'channels=1 or channels=3 with dtype="uint8" says that 8 are enough',
            stacklevel=2,
        )
