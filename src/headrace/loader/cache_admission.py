"""Choice of the samples that a cache smaller than the data stores: neighbours in storage, from the first on.

Cached neighbours save their requests. Samples cached here and there save none: all others are still read, in more
pieces or with the bytes between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset
from headrace.fields import Image, Spatial
from headrace.loader.decoding.arrays import Ints
from headrace.loader.decoding.pixels import parts_of
from headrace.plan import EpochPlan, UniformPlan

_SUMMED_SAMPLES = 1 << 16
"""Samples whose bytes are summed at once."""


@dataclass(frozen=True)
class Admission:
    """Samples that a cache stores: those before position `stop` of the dataset."""

    stop: int
    spare_bytes: int
    """Room that is left once all of them are stored, too small for the next sample."""

    def keeps(self, samples: Ints) -> NDArray[np.uint8]:
        """Return a flag per sample, 1 to store it."""
        return (samples < self.stop).view(np.uint8)


def samples_that_fit(
    dataset: Dataset, plan: EpochPlan, columns: Sequence[str], pixel_bytes: int, *, room_bytes: int
) -> Admission | None:
    """Return the samples that fit into a room; None if all fit, a plan repeats samples, or sizes are unknown.

    `columns`: those whose files are cached, once for each field. `pixel_bytes`: minimum bytes of all other fields of a
    sample. If they take more, the cache is full before all of these samples are in it. All jobs choose alike, since
    neither seed nor rank matters.
    """
    files = [dataset.table.bytes_of(column) for column in columns]
    if not isinstance(plan, UniformPlan) or plan.draws is not None:
        return None

    def bytes_of(samples: Ints) -> Ints | None:
        ids = samples if dataset.base_ids is None else dataset.base_ids[samples]
        found = np.full(len(samples), pixel_bytes, np.int64)
        for column in files:
            stored = column.stored_bytes(ids)
            if stored is None:
                return None
            found += np.maximum(stored, 0)
        return found

    for first in range(0, plan.length, _SUMMED_SAMPLES):
        found = bytes_of(np.arange(first, min(first + _SUMMED_SAMPLES, plan.length), dtype=np.int64))
        if found is None:
            return None
        taken = np.cumsum(found)
        if taken[-1] > room_bytes:
            fit = int(np.searchsorted(taken, room_bytes, side="right"))
            return Admission(first + fit, room_bytes - (int(taken[fit - 1]) if fit else 0))
        room_bytes -= int(taken[-1])
    return None


def least_bytes(field: Spatial, cut: str, size: tuple[int, int] | None) -> int:
    """Return the minimum bytes of an entry of a field's pixels. `size`: (height, width) after its view, if known."""
    if cut == "shrunk":
        assert isinstance(field, Image)
        assert field.shrink_to is not None
        return field.channel_count * field.shrink_to**2
    if size is None:
        return 0
    parts = parts_of("", field)
    if isinstance(field, Image) and not field.wide:  # cached before conversion
        parts = [replace(part, dtype="uint8") for part in parts]
    return sum(part.nbytes(size) for part in parts)
