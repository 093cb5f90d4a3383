"""Bucket of each sample, and the largest sample of each bucket."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import mapped_zeros, position_blocks, release_pages
from headrace.errors import UsageError
from headrace.plan.batching import DEFAULT_COUNT, MOST_BUCKETS, Buckets
from headrace.plan.bucket_keys import Categories, Numbers, too_many_buckets
from headrace.plan.bucket_members import BucketMembers, CodedMembers, blank_codes, no_bucket
from headrace.plan.step_views import ImageSizes, Ints, StepViews, output_sizes, rounded_up

_SAMPLED = 1 << 16
_PARTS = 64
_EDGES = 1 << 33
"""Stream that draws the samples for quantile edges."""


@dataclass(frozen=True, eq=False)
class Coding:
    """Mapping of samples to buckets."""

    code: Callable[[Ints], Ints]
    """Function from positions to buckets; -1 for an unknown bucket."""
    buckets: int
    names: Callable[[int], str]
    """Name of a bucket, for messages."""


def by_numbers(
    numbers: Numbers, buckets: Buckets, *, length: int, seed: int, used: NDArray[np.int32] | None = None
) -> Coding:
    """Return buckets between the given edges, or quantiles of a sample drawn by `seed`. `used` as in `members_of`."""
    edges = (
        np.array(buckets.edges, np.float64)
        if buckets.edges is not None
        else _quantiles(numbers, buckets.count or DEFAULT_COUNT, length=length, seed=seed, used=used)
    )

    def code(positions: Ints) -> Ints:
        values = numbers(positions)
        return np.where(np.isnan(values), -1, np.searchsorted(edges, values, side="right"))

    def name(bucket: int) -> str:
        low = "" if bucket == 0 else f" from {edges[bucket - 1]:g}"
        high = "" if bucket == len(edges) else f" to below {edges[bucket]:g}"
        return f"bucket {bucket} ({'value' if callable(buckets.by) else buckets.by}{low}{high})"

    return Coding(code, len(edges) + 1, name)


def _quantiles(
    numbers: Numbers, count: int, *, length: int, seed: int, used: NDArray[np.int32] | None
) -> NDArray[np.float64]:
    """Return edges between `count` parts, as equal as ties allow; fewer if there are fewer values."""
    positions = np.arange(min(length, _SAMPLED), dtype=np.int64)
    if length > _SAMPLED:
        positions = np.sort(_core.permute(length, _core.hash64(seed, _EDGES), positions))
    found = []
    for part in np.array_split(positions, _PARTS):  # spread over a mapped file: read it in parts
        found.append(numbers(part))
        release_pages(used)
    values = np.sort(np.concatenate(found))
    values = values[~np.isnan(values)]
    if len(values) == 0:
        raise _nothing_known()
    edges = np.unique(values[np.arange(1, count) * len(values) // count])
    inner: NDArray[np.float64] = edges[edges > values[0]]
    return inner


def by_categories(categories: Categories, *, length: int) -> Coding:
    """Return a bucket for each category that occurs, in the order of categories."""
    there: Ints = np.empty(0, np.int64)
    for positions in position_blocks(length):
        there = np.union1d(there, categories(positions))
        if len(there) > MOST_BUCKETS + 1:
            raise too_many_buckets()
    there = there[there >= 0]
    if len(there) == 0:
        raise _nothing_known()

    def code(positions: Ints) -> Ints:
        found = categories(positions)
        return np.where(found < 0, -1, np.searchsorted(there, found))

    return Coding(code, len(there), lambda bucket: f"bucket {bucket}")


def members_of(coding: Coding, *, length: int, used: NDArray[np.int32] | None) -> CodedMembers:
    """Index samples by bucket; samples of an unknown bucket go to the largest bucket.

    `used` is the array that the coding reads, which may be mapped from a file.
    """
    codes = blank_codes(length, coding.buckets, mapped_zeros)
    flat, none = codes.reshape(-1), no_bucket(codes.dtype)
    counts = np.zeros(coding.buckets, np.int64)
    for positions in position_blocks(length):
        found = coding.code(positions)
        counts += np.bincount(found[found >= 0], minlength=coding.buckets)
        flat[positions[0] : positions[-1] + 1] = np.where(found < 0, none, found)
        release_pages(codes, used)
    if not counts.any():
        raise _nothing_known()
    if counts.sum() < length:
        for positions in position_blocks(length):
            part = flat[positions[0] : positions[-1] + 1]
            part[part == none] = counts.argmax()
    members = CodedMembers.of(codes, coding.buckets, mapped_zeros)
    release_pages(members.codes, members.before)
    return members


def _nothing_known() -> UsageError:
    return UsageError(
        "Buckets: expected at least one sample whose bucket is known, got none: no image's size can be read, or no "
        "length; look at one with ds[0], or name another column with source="
    )


_EXTREMES = 4


def shape_bounds(members: BucketMembers, sizes: ImageSizes | None, views: StepViews) -> tuple[Ints, Ints]:
    """Return the greatest height and width of a member at each scale, rounded up, [buckets, scales] each."""
    shape = (len(members.counts), len(views.tables))
    if views.output is not None:
        return np.full(shape, views.output[0]), np.full(shape, views.output[1])
    assert sizes is not None, "the output depends on them"
    largest = _extremes(members, sizes)
    heights, widths = np.ones(shape, np.int64), np.ones(shape, np.int64)
    for scale, table in enumerate(views.tables):
        found = output_sizes(table, *largest.reshape(-1, 2).T)
        if not found[0].all():  # the view cannot produce the greatest aspect, so it bounds no other
            return _bounds_of_all(members, sizes, views)
        for bound, side in zip((heights, widths), found, strict=True):
            bound[:, scale] = rounded_up(side.reshape(shape[0], _EXTREMES).max(axis=1), views.multiple_of)
    return heights, widths


def _bounds_of_all(members: BucketMembers, sizes: ImageSizes, views: StepViews) -> tuple[Ints, Ints]:
    """Return the same bounds from the view's output for each image, which takes long."""
    shape = (len(members.counts), len(views.tables))
    heights, widths = np.ones(shape, np.int64), np.ones(shape, np.int64)
    for positions in position_blocks(int(members.counts.sum())):
        piece = sizes(positions)
        known = piece[:, 0] > 0
        codes = codes_of(members, positions)[known]
        for scale, table in enumerate(views.tables):
            found = output_sizes(table, *piece[known].T)
            for bound, side in zip((heights, widths), found, strict=True):
                np.maximum.at(bound[:, scale], codes, side)
    return rounded_up(heights, views.multiple_of), rounded_up(widths, views.multiple_of)


def length_bounds(members: BucketMembers, lengths: Numbers, scales: int) -> tuple[Ints, Ints]:
    """Return the greatest length of each bucket: as heights, at a width of 1."""
    longest = np.ones(len(members.counts))
    for positions in position_blocks(int(members.counts.sum())):
        values = lengths(positions)
        known = ~np.isnan(values)
        np.maximum.at(longest, codes_of(members, positions)[known], values[known])
    heights = np.repeat(np.ceil(longest).astype(np.int64)[:, None], scales, axis=1)
    return heights, np.ones_like(heights)


def codes_of(members: BucketMembers, positions: Ints) -> NDArray[np.integer]:
    """Return the buckets of consecutive positions."""
    if not isinstance(members, CodedMembers):
        return np.zeros(len(positions), np.uint8)
    return members.codes.reshape(-1)[positions[0] : positions[-1] + 1]


def _extremes(members: BucketMembers, sizes: ImageSizes) -> NDArray[np.int32]:
    """Return sizes of members, int32[buckets, 4, 2]: least aspect, greatest aspect, highest, widest.

    No view makes a member higher than the highest of these, or wider than the widest. A resize that preserves the
    aspect gives the greatest width to the greatest aspect, and the greatest height to the least.
    """
    best = np.full((_EXTREMES, len(members.counts)), -np.inf)
    found = np.ones((len(members.counts), _EXTREMES, 2), np.int32)
    for positions in position_blocks(int(members.counts.sum())):
        piece = sizes(positions)
        known = piece[:, 0] > 0
        piece, codes = piece[known], codes_of(members, positions)[known]
        height, width = piece.astype(np.float64).T
        for extreme, value in enumerate((height / width, width / height, height, width)):
            before = best[extreme].copy()
            np.maximum.at(best[extreme], codes, value)
            rows = np.flatnonzero((value == best[extreme][codes]) & (value > before[codes]))
            found[codes[rows], extreme] = piece[rows]
        release_pages(sizes.known, members.codes if isinstance(members, CodedMembers) else None)
    return found
