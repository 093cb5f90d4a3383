"""View and shape that all images of a step share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ViewColumn, ViewKind

Ints: TypeAlias = NDArray[np.int64]
Sizes: TypeAlias = Callable[[Ints], NDArray[np.int32]]
"""Function from dataset positions to the images' (height, width), int32[N, 2]; 0 0 if unknown."""

MOST_ASPECT = 250
"""Maximum ratio of the sides. A longer image counts as one of unknown size: it must affect neither a batch's shape nor
its budget."""


@dataclass(frozen=True, eq=False)
class ImageSizes:
    """Sizes of a dataset's images, by position."""

    known: NDArray[np.int32]
    """Known sizes as (height, width), int32[N, 2]; 0 0 if unknown."""

    def __call__(self, positions: Ints) -> NDArray[np.int32]:
        sizes = self.known[positions]
        height, width = sizes.T
        sizes[np.maximum(height, width) // MOST_ASPECT > np.minimum(height, width)] = 0
        return sizes


@dataclass(frozen=True, eq=False)
class StepView:
    """View that all samples of one step share, on every rank."""

    ops: NDArray[np.float64]
    """The core's numbers of the view, including the last step that pads to `size`."""
    size: tuple[int, int]
    """(height, width) of every image."""
    sources: NDArray[np.int32] | None = None
    """(height, width) of the images before the view, int32[N, 2], which determine `size`; 0 0 if unknown. None if they
    do not matter."""

    def of_rows(self, rows: slice) -> StepView:
        """Return the view for these of the batch's samples."""
        return self if self.sources is None else replace(self, sources=self.sources[rows])


@dataclass(frozen=True, eq=False, kw_only=True)
class StepViews:
    """Views that a step may draw: `tables` has the core's numbers of the view at each scale, float64[ops, 10].

    `output` is the size of the view's output, whatever the source is. If it is None, images are padded to the largest
    of the step, rounded up to `multiple_of`. `sizes` then gives the sizes of all samples of the step.
    """

    tables: tuple[NDArray[np.float64], ...]
    output: tuple[int, int] | None
    sizes: Sizes | None
    multiple_of: int = 1

    def of(self, scale: int, samples: Ints, stand_ins: Callable[[int, bool], Ints]) -> StepView:
        """Return the view of a global batch.

        A sample without a size counts with the first known size of `stand_ins(row, False)`. If no size is known, the
        first known size of `stand_ins(0, True)` counts.
        """
        if self.output is not None:
            return StepView(self.tables[scale], self.output)
        assert self.sizes is not None, "the output depends on them"
        sources = self.sizes(samples)
        sizes = self._readable(sources, stand_ins)
        sides = np.array([side.max(initial=1) for side in output_sizes(self.tables[scale], *sizes.T)])
        height, width = rounded_up(sides, self.multiple_of).tolist()
        pad = np.zeros((1, self.tables[scale].shape[1]))
        pad[0, :3] = ViewKind.CENTER_CROP, height, width
        return StepView(np.concatenate([self.tables[scale], pad]), (height, width), sources)

    def _readable(self, sources: NDArray[np.int32], stand_ins: Callable[[int, bool], Ints]) -> NDArray[np.int32]:
        known = sources[:, 0] > 0
        others = [self._first_known(stand_ins(row, False)) for row in np.flatnonzero(~known).tolist()]
        sizes = np.concatenate([sources[known], *others])
        return sizes if len(sizes) else self._first_known(stand_ins(0, True))

    def _first_known(self, samples: Ints) -> NDArray[np.int32]:
        """Return the first known size, [1, 2], or [0, 2] if none is known."""
        assert self.sizes is not None, "the output depends on them"
        sizes = self.sizes(samples)
        return sizes[sizes[:, 0] > 0][:1]


NO_VIEWS = StepViews(tables=(np.zeros((0, 10)),), output=(0, 0), sizes=None)
"""Views for plans of samples without images."""


def output_sizes(ops: NDArray[np.float64], heights: NDArray[np.int32], widths: NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Return the (heights, widths) of the view's outputs for sources of these sizes, 0 if it cannot be applied.

    The core's own arithmetic decides. The size of an output never depends on random draws.
    """
    try:
        return _output_sizes(ops, heights, widths)
    except ValueError:  # one size fails, and the core does not report which
        half = len(heights) // 2
        if half == 0:
            return np.zeros(1, np.int64), np.zeros(1, np.int64)
        parts = [output_sizes(ops, heights[part], widths[part]) for part in (slice(half), slice(half, None))]
        return np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])


def _output_sizes(ops: NDArray[np.float64], heights: NDArray[np.int32], widths: NDArray[np.int32]) -> tuple[Ints, Ints]:
    count = len(heights)
    views = _core.sample_views(
        ops,
        0,
        np.zeros(count, np.int64),
        np.zeros(count, np.uint32),
        0,
        np.ascontiguousarray(widths),
        np.ascontiguousarray(heights),
    )
    return views[:, ViewColumn.HEIGHT].astype(np.int64), views[:, ViewColumn.WIDTH].astype(np.int64)


def rounded_up(sides: Ints, multiple: int) -> Ints:
    """Return `sides`, each rounded up to a multiple."""
    return -(-sides // multiple) * multiple
