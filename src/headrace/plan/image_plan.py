"""`ImagePlan`: the images that each sample of a plan takes of its list."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import Dataset, numbers_in_ranges
from headrace.fields import Images
from headrace.plan.draws import uniform_numbers
from headrace.plan.mixture import SourceBatches
from headrace.plan.order import BatchPlan
from headrace.plan.step_views import Ints


@dataclass(frozen=True, eq=False)
class ImagePlan(SourceBatches):
    """Plan of a field of several images: its samples are images, and its steps those of `plan`."""

    dataset: Dataset
    offsets: NDArray[np.int64]
    """Images of the sample with base id i: `offsets[i]` to `offsets[i + 1]`."""
    field: Images
    stream: int
    """Key of the field's draws of images, within the epoch's key."""

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """Return the images of this rank's part of the global batch at `step` of `epoch`."""
        return self.images_of(self.plan.batch(epoch, step))[0]

    def images_of(self, batch: BatchPlan) -> tuple[BatchPlan, Ints]:
        """Return the plan of the images of a batch's samples, and each image's row of `batch`."""
        images, rows = self.choose(batch.samples, batch.passes, self.plan.key(batch.epoch))
        view = batch.view
        if view is not None:  # a batch without images of one a sample has no size: the loader's view has
            view = None if view.size == (0, 0) else replace(view, sources=None)
        passes, positions = batch.passes[rows], batch.positions[rows]
        return replace(batch, samples=images, passes=passes, positions=positions, view=view, rows=None), rows

    def choose(self, samples: Ints, passes: NDArray[np.uint32], key: int) -> tuple[Ints, Ints]:
        """Return the images of samples at these positions, drawn by their passes and `key`, and each image's row.

        A sample without an image has no row, whatever the field's count is.
        """
        base_ids = samples if self.dataset.base_ids is None else self.dataset.base_ids[samples]
        first = self.offsets[base_ids]
        sizes = self.offsets[base_ids + 1] - first
        count = self.field.count
        if count is None:
            rows = np.repeat(np.arange(len(samples)), sizes)
            return numbers_in_ranges(first, sizes), rows
        some = np.flatnonzero(sizes)
        ids = self.dataset.draw_ids(samples[some])
        chosen = self._chosen(sizes[some], ids, passes[some], _core.hash64(key, self.stream))
        return (first[some, None] + chosen).reshape(-1), np.repeat(some, count)

    def _chosen(self, sizes: Ints, draw_ids: Ints, passes: NDArray[np.uint32], key: int) -> Ints:
        """Return the place in its list of each chosen image, [samples, count], for lists of `sizes` images above 0."""
        count = self.field.count
        assert count is not None
        steps = np.arange(count)
        most = sizes[:, None] - 1
        if self.field.frames == "window":
            room = np.maximum(0, most - (count - 1) * self.field.stride)
            drawn = uniform_numbers(key, draw_ids, 0, passes)[:, None]
            window: Ints = np.minimum((drawn * (room + 1)).astype(np.int64) + steps * self.field.stride, most)
            return window
        within: float | NDArray[np.float64] = 0.5
        if self.field.frames == "segments":
            within = np.stack([uniform_numbers(key, draw_ids, step, passes) for step in steps.tolist()], axis=1)
        spread: Ints = np.minimum(((steps + within) * sizes[:, None] / count).astype(np.int64), most)
        return spread
