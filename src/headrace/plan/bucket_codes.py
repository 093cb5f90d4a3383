"""Each sample's bucket, written down once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data.mapped import let_go, mapped, pieces
from headrace.errors import UsageError
from headrace.plan.batching import DEFAULT_COUNT, MOST_BUCKETS, Buckets
from headrace.plan.bucket_keys import Categories, Ints, Numbers, too_many_buckets
from headrace.plan.bucket_members import CodedMembers, blank_codes, no_bucket

_SAMPLED = 1 << 16
_PARTS = 64
_EDGES = 1 << 33
"""Draws the samples of which edges are quantiles."""


@dataclass(frozen=True, eq=False)
class Coding:
    """How samples become buckets' numbers."""

    code: Callable[[Ints], Ints]
    """Positions to buckets; -1 where it is not known."""
    buckets: int
    names: Callable[[int], str]
    """A bucket in words."""


def by_numbers(
    numbers: Numbers, buckets: Buckets, *, length: int, seed: int, used: NDArray[np.int32] | None = None
) -> Coding:
    """Between edges that are given, or quantiles of a sample drawn by `seed`. `used` as in `members_of`."""
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
    """Edges between `count` parts as equal as ties allow; fewer where values are."""
    positions = np.arange(min(length, _SAMPLED), dtype=np.int64)
    if length > _SAMPLED:
        positions = np.sort(_core.permute(length, _core.hash64(seed, _EDGES), positions))
    found = []
    for part in np.array_split(positions, _PARTS):  # which are all over a mapped file: not all of it at once
        found.append(numbers(part))
        let_go(used)
    values = np.sort(np.concatenate(found))
    values = values[~np.isnan(values)]
    if len(values) == 0:
        raise _nothing_known()
    edges = np.unique(values[np.arange(1, count) * len(values) // count])
    inner: NDArray[np.float64] = edges[edges > values[0]]
    return inner


def by_categories(categories: Categories, *, length: int) -> Coding:
    """A bucket for each that there is, in their order."""
    there: Ints = np.empty(0, np.int64)
    for positions in pieces(length):
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
    """Samples by bucket; those whose bucket is not known go to the largest. `used`: what the coding reads, which may be
    mapped."""
    codes = blank_codes(length, coding.buckets, mapped)
    flat, none = codes.reshape(-1), no_bucket(codes.dtype)
    counts = np.zeros(coding.buckets, np.int64)
    for positions in pieces(length):
        found = coding.code(positions)
        counts += np.bincount(found[found >= 0], minlength=coding.buckets)
        flat[positions[0] : positions[-1] + 1] = np.where(found < 0, none, found)
        let_go(codes, used)
    if not counts.any():
        raise _nothing_known()
    if counts.sum() < length:
        for positions in pieces(length):
            part = flat[positions[0] : positions[-1] + 1]
            part[part == none] = counts.argmax()
    members = CodedMembers.of(codes, coding.buckets, mapped)
    let_go(members.codes, members.before)
    return members


def _nothing_known() -> UsageError:
    return UsageError(
        "Buckets: expected what samples are told apart by to be known of some, got none: no image's size can be read, "
        "or no length; look at one with ds[0], or name another column with source="
    )
