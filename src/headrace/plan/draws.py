"""Draws that fill an epoch's positions: by weights, by repeat factors (also of buckets), and repeated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ReservedStage
from headrace.plan.bucket_members import BucketMembers
from headrace.plan.order import FIRST_REPLACEMENT_PASS, MAX_GLOBAL_BATCH, Order
from headrace.plan.step_views import Ints

Floats = NDArray[np.float64]

MOST_DRAWS = FIRST_REPLACEMENT_PASS - MAX_GLOBAL_BATCH
"""Maximum draws of an epoch: a draw's position is its pass, and a wrapped batch extends beyond these positions."""

_DRAWS = ReservedStage.DRAWS << 8
"""Random stream of the draws: dataset 0, stage 252, draw 0. Above every stage of a view (core/rng/stream.hpp)."""
_OFFSETS = ReservedStage.OFFSETS << 8
"""Random stream of the offset that rounds an epoch's repeat factors."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Draws(ABC):
    """Draws that fill an epoch's positions, instead of every sample once.

    Pure, as an order is: the sample at a position follows from the order's seed, the epoch and the position.
    """

    count: int
    """Number of draws in an epoch."""
    samples: int
    """Number of samples to draw from."""
    words: str
    """Description of everything that the draws depend on, apart from the order: part of a state."""

    @abstractmethod
    def draw(self, order: Order, epoch: int, positions: Ints, *, first: int, size: int) -> tuple[Ints, Ints]:
        """Return the samples at positions of the global batch of `size` that begins at `first`, and their passes.

        A sample never has one pass twice in an epoch. Positions from `count` on belong to a wrapped batch.
        """

    @abstractmethod
    def pick(self, bits: int) -> int:
        """Return the sample that 64 random bits choose, to replace a bad one."""

    @property
    @abstractmethod
    def different(self) -> int:
        """Maximum number of different samples in an epoch."""


@dataclass(frozen=True, eq=False, kw_only=True)
class WeightedDraws(Draws):
    """Draws with replacement: each draw picks a sample in proportion to its weight, independent of the others."""

    ends: Floats
    """Cumulative weights: sample i has the interval from ends[i - 1] to ends[i]."""

    def draw(self, order: Order, epoch: int, positions: Ints, *, first: int, size: int) -> tuple[Ints, Ints]:
        return _sample_at(self.ends, uniform_numbers(order.key(epoch), positions, _DRAWS) * self.ends[-1]), positions

    def pick(self, bits: int) -> int:
        return _pick(self.ends, bits)

    @property
    def different(self) -> int:
        return min(self.count, int(np.count_nonzero(np.diff(self.ends, prepend=0.0))))


@dataclass(frozen=True, eq=False, kw_only=True)
class FactorDraws(Draws):
    """Draws that take each sample its factor times, rounded down or up, in a shuffled order.

    Systematic sampling (Madow, 1944): the factors are placed end to end on a line, and draw k is the sample at k + u.
    The offset u is uniform in [0, 1) and drawn once per epoch. The number of draws is therefore fixed. Rounding each
    factor independently, as detectron2 does, does not fix it.
    """

    ends: Floats
    """Cumulative factors, scaled so that the last is `count`."""

    def draw(self, order: Order, epoch: int, positions: Ints, *, first: int, size: int) -> tuple[Ints, Ints]:
        turns = order.shuffled(positions % self.count, count=self.count, epoch=epoch)
        return _at_turns(self.ends, turns, order.key(epoch), 0), positions

    def pick(self, bits: int) -> int:
        return _pick(self.ends, bits)

    @property
    def different(self) -> int:
        return min(self.count, self.samples)


@dataclass(frozen=True, eq=False, kw_only=True)
class RepeatedDraws(Draws):
    """Draws of the shuffled samples in turn, each `repeats` times in a row, as many as an epoch holds.

    Repeated augmentation (Hoffer et al., 2020; Berman et al., 2019) as in DeiT's RASampler, which deals the repeats out
    to ranks in turn. Here a global batch has all first repeats, then all second ones, and so on. With at least as many
    ranks as repeats, no rank holds a sample twice in a full batch.
    """

    repeats: int

    def draw(self, order: Order, epoch: int, positions: Ints, *, first: int, size: int) -> tuple[Ints, Ints]:
        repeats = np.arange(self.repeats)
        # Draw t is repeat t % repeats of sample t // repeats: the first such sample of each repeat, and their numbers.
        starts, stops = (-((repeats - at) // self.repeats) for at in (first, first + size))
        ends = np.cumsum(stops - starts)
        again = np.searchsorted(ends, positions - first, side="right")
        rounds, places = np.divmod(stops[again] - ends[again] + positions - first, self.samples)
        return order.shuffled(places, count=self.samples, epoch=epoch), rounds * self.repeats + again

    def pick(self, bits: int) -> int:
        return bits * self.samples >> 64

    @property
    def different(self) -> int:
        return min(self.samples, -(-self.count // self.repeats))


@dataclass(frozen=True, eq=False, kw_only=True)
class BucketFactors:
    """Draws that take each bucket's members their factors times, as `FactorDraws` takes all samples."""

    counts: Ints
    """Number of draws of each bucket."""
    samples: int
    """Number of samples in all buckets."""
    ends: Floats
    """Cumulative factors of the members, scaled so that each bucket's last is its count; bucket by bucket."""
    offsets: Ints
    """Bounds of the buckets: bucket b has ends[offsets[b] : offsets[b + 1]]."""

    @classmethod
    def of(cls, members: BucketMembers, factors: Floats) -> BucketFactors:
        """Arrange the factors, given by dataset position, in the order of the buckets' members."""
        counts = members.counts
        parts = [scaled_ends(factors[members.select(bucket, np.arange(count))]) for bucket, count in enumerate(counts)]
        draws = np.array([round(part[-1]) if len(part) else 0 for part in parts], np.int64)
        offsets = np.concatenate([[0], np.cumsum(counts)])
        return cls(counts=draws, samples=len(factors), ends=np.concatenate(parts), offsets=offsets)

    def members_at(self, key: int, bucket: int, turns: Ints) -> Ints:
        """Return the numbers of the members at these turns of the bucket, below its count."""
        return _at_turns(self.ends[self.offsets[bucket] : self.offsets[bucket + 1]], turns, key, bucket)


def scaled_ends(factors: Floats, count: int | None = None) -> Floats:
    """Return the cumulative factors, scaled so that the last is `count`; None: their sum, rounded up."""
    ends = np.cumsum(factors)
    if len(ends):
        last = np.ceil(ends[-1]) if count is None else count
        ends *= last / ends[-1]
        ends[-1] = last
    return ends


def _at_turns(ends: Floats, turns: Ints, key: int, bucket: int) -> Ints:
    return _sample_at(ends, turns + uniform_numbers(key, np.array([bucket]), _OFFSETS))


def _sample_at(ends: Floats, points: Floats) -> Ints:
    """Return the sample whose interval of the line holds each point. A sample with an empty interval holds none."""
    # A point may be rounded up to the line's end, which belongs to the last sample with an interval.
    last = np.searchsorted(ends, ends[-1], side="left")
    found: Ints = np.minimum(np.searchsorted(ends, points, side="right"), last).astype(np.int64)
    return found


def uniform_numbers(key: int, positions: Ints, stage: int, passes: NDArray[np.uint32] | int = 0) -> Floats:
    """Return a multiple of 2^-53 in [0, 1) for each position: `unit_interval` of core/rng/stream.hpp."""
    counters = np.zeros((len(positions), 4), np.uint32)
    counters[:, 0], counters[:, 1] = positions & 0xFFFF_FFFF, positions >> 32
    counters[:, 2], counters[:, 3] = passes, stage
    words = _core.philox(key, counters).astype(np.uint64)
    bits = words[:, 1] << np.uint64(32) | words[:, 0]
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _pick(ends: Floats, bits: int) -> int:
    return int(_sample_at(ends, np.array([(bits >> 11) * 2.0**-53]) * ends[-1])[0])
