"""The most that a sample of each bucket can measure, which is what a budget counts it as."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.data.mapped import let_go, pieces
from headrace.grouping.image_sizes import ImageSizes
from headrace.plan.bucket_keys import Ints, Numbers
from headrace.plan.bucket_members import CodedMembers, Members
from headrace.plan.step_views import StepViews, output_sizes, rounded_up

_EXTREMES = 4


def shape_bounds(members: Members, sizes: ImageSizes | None, views: StepViews) -> tuple[Ints, Ints]:
    """[buckets, scales] each: the greatest height and the greatest width of a member at that scale, rounded up."""
    shape = (len(members.counts), len(views.tables))
    if views.output is not None:
        return np.full(shape, views.output[0]), np.full(shape, views.output[1])
    assert sizes is not None, "the output depends on them"
    largest = _extremes(members, sizes)
    heights, widths = np.ones(shape, np.int64), np.ones(shape, np.int64)
    for scale, table in enumerate(views.tables):
        found = output_sizes(table, *largest.reshape(-1, 2).T)
        if not found[0].all():  # the greatest aspect is beyond what the view can make, and so no bound of others
            return _bounds_of_all(members, sizes, views)
        for bound, side in zip((heights, widths), found, strict=True):
            bound[:, scale] = rounded_up(side.reshape(shape[0], _EXTREMES).max(axis=1), views.multiple_of)
    return heights, widths


def _bounds_of_all(members: Members, sizes: ImageSizes, views: StepViews) -> tuple[Ints, Ints]:
    """The same by what the view makes of each image, which takes long."""
    shape = (len(members.counts), len(views.tables))
    heights, widths = np.ones(shape, np.int64), np.ones(shape, np.int64)
    for positions in pieces(int(members.counts.sum())):
        piece = sizes(positions)
        known = piece[:, 0] > 0
        codes = codes_of(members, positions)[known]
        for scale, table in enumerate(views.tables):
            found = output_sizes(table, *piece[known].T)
            for bound, side in zip((heights, widths), found, strict=True):
                np.maximum.at(bound[:, scale], codes, side)
    return rounded_up(heights, views.multiple_of), rounded_up(widths, views.multiple_of)


def length_bounds(members: Members, lengths: Numbers, scales: int) -> tuple[Ints, Ints]:
    """The same of lengths: as heights, at a width of 1."""
    longest = np.ones(len(members.counts))
    for positions in pieces(int(members.counts.sum())):
        values = lengths(positions)
        known = ~np.isnan(values)
        np.maximum.at(longest, codes_of(members, positions)[known], values[known])
    heights = np.repeat(np.ceil(longest).astype(np.int64)[:, None], scales, axis=1)
    return heights, np.ones_like(heights)


def codes_of(members: Members, positions: Ints) -> NDArray[np.integer]:
    """The buckets of consecutive positions."""
    if not isinstance(members, CodedMembers):
        return np.zeros(len(positions), np.uint8)
    return members.codes.reshape(-1)[positions[0] : positions[-1] + 1]


def _extremes(members: Members, sizes: ImageSizes) -> NDArray[np.int32]:
    """Sizes of members, int32[buckets, 4, 2]: of the least and the greatest aspect, the highest, the widest.

    No view makes a member higher than the highest of these, or wider than the widest: a resize that keeps the shape
    gives the greatest width to the greatest aspect, and the greatest height to the least.
    """
    best = np.full((_EXTREMES, len(members.counts)), -np.inf)
    found = np.ones((len(members.counts), _EXTREMES, 2), np.int32)
    for positions in pieces(int(members.counts.sum())):
        piece = sizes(positions)
        known = piece[:, 0] > 0
        piece, codes = piece[known], codes_of(members, positions)[known]
        height, width = piece.astype(np.float64).T
        for extreme, value in enumerate((height / width, width / height, height, width)):
            before = best[extreme].copy()
            np.maximum.at(best[extreme], codes, value)
            rows = np.flatnonzero((value == best[extreme][codes]) & (value > before[codes]))
            found[codes[rows], extreme] = piece[rows]
        let_go(sizes.known, members.codes if isinstance(members, CodedMembers) else None)
    return found
