"""Mixture of several sources: exact proportions, and the plan of each source within them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational, Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError
from headrace.plan import order
from headrace.plan.order import FIRST_REPLACEMENT_PASS, BatchPlan, EpochPlan, Remainder

# -- from plan/mixture.py: Which source of a mixture stands at which position: exact proportions, computed for any
# position alone.


Ints = NDArray[np.int64]
Until = Literal["largest", "smallest"]

MIXTURE_VERSION = 1
"""Part of every saved state. Raise it with any change to which source stands where."""

_WINDOWS = 1 << 48
_TURN_BITS = 32


@dataclass(frozen=True)
class Mixture:
    """Endless positions, cut into windows of `window`; source i has `counts[i]` positions of every window.

    Within a window each source's positions are spread evenly, as the pixels of a slanted line are (J. E. Bresenham,
    "Algorithm for computer control of a digital plotter", 1965): the heaviest source takes its positions, the next one
    takes its own of those that are left, and so on. A keyed draw turns each window round, so that a source does not
    always fall to the same place of a batch.
    """

    counts: tuple[int, ...]
    seed: int

    @property
    def window(self) -> int:
        return sum(self.counts)

    @property
    def shares(self) -> list[Fraction]:
        return [Fraction(count, self.window) for count in self.counts]

    def before(self, positions: Ints) -> Ints:
        """How many positions each source has below each of `positions` [N]: int64 [N, sources]."""
        windows, left = np.divmod(positions, self.window)
        taken = windows[:, None] * np.array(self.counts, np.int64)
        wide = self.window
        for level, source in enumerate(self._order):
            count = self.counts[source]
            found = (left * count + self._turns(level, windows, wide)) // wide
            taken[:, source] += found
            left, wide = left - found, wide - count
        return taken

    def between(self, start: int, stop: int) -> tuple[Ints, Ints]:
        """Of positions `start` to `stop`: the source of each, and the how-many-th of that source it is. int64 [N]."""
        taken = self.before(np.arange(start, stop + 1, dtype=np.int64))
        sources = np.diff(taken, axis=0).argmax(axis=1)
        return sources, taken[np.arange(stop - start), sources]

    def taken(self, position: int) -> list[int]:
        """How many positions each source has below `position`. Raises UsageError for one beyond what can be counted."""
        most = min(self.window * _WINDOWS, 1 << 62)
        if position >= most:
            raise UsageError(f"mixture: expected an epoch below {most} batches or samples in all, got {position}")
        found: list[int] = self.before(np.array([position], np.int64))[0].tolist()
        return found

    @cached_property
    def off(self) -> list[Fraction]:
        """By how much, at most, a source's positions below any place of a window may differ from its share of them."""
        found, left_off, wide = [Fraction(0)] * len(self.counts), Fraction(0), self.window
        for source in self._order:
            share = Fraction(self.counts[source], wide)
            last = share == 1
            found[source] = left_off if last else share * left_off + 1
            left_off, wide = (1 - share) * left_off + 1, wide - self.counts[source]
        return found

    def steps_of_epoch(self, lengths: list[int], *, until: Until, positions_a_step: int) -> int:
        """The fewest steps that an epoch must have so that in any epoch all sources ("largest"), or one of them
        ("smallest"), come at least as often as `lengths` says.

        Either its edges are those of windows, where counts are exact, or there are enough to spare.
        """
        fit = max if until == "largest" else min
        needed = [Fraction(length) / share for length, share in zip(lengths, self.shares, strict=True)]
        # Less than that many are missing, so it takes one less to have them all.
        spare = [max(2 * off - 1, Fraction(0)) / share for off, share in zip(self.off, self.shares, strict=True)]
        of_windows = self.window // math.gcd(self.window, positions_a_step)
        exact = math.ceil(fit(needed) / (positions_a_step * of_windows)) * of_windows
        loose = math.ceil(fit(map(sum, zip(needed, spare, strict=True))) / positions_a_step)
        return min(exact, loose)

    @cached_property
    def _order(self) -> list[int]:
        """Heaviest first, which keeps what the others are off by small."""
        return sorted(range(len(self.counts)), key=lambda source: -self.counts[source])

    def _turns(self, level: int, windows: Ints, wide: int) -> Ints:
        """By how much each window is turned round, below `wide`."""
        key = _core.hash64(_core.hash64(self.seed, level), wide)
        drawn = _core.permute(_WINDOWS, key, windows) >> (_WINDOWS.bit_length() - 1 - _TURN_BITS)
        return drawn * wide >> _TURN_BITS


# -- from plan/source_plans.py: What one source of a mixture makes in one of the mixture's epochs, as the plan that
# its feed runs.


@dataclass(frozen=True)
class SourceBatches:
    """A source's own batches, epoch after epoch of its own, numbered through from its first: those below `steps`."""

    plan: EpochPlan
    steps: int

    @property
    def length(self) -> int:
        return self.plan.length

    @property
    def batch_size(self) -> int:
        return self.plan.batch_size

    @property
    def world_size(self) -> int:
        return self.plan.world_size

    @property
    def rank(self) -> int:
        return self.plan.rank

    @property
    def shuffle(self) -> bool:
        return self.plan.shuffle

    @property
    def seed(self) -> int:
        return self.plan.seed

    @property
    def remainder(self) -> Remainder:
        return self.plan.remainder

    @property
    def global_batch(self) -> int:
        return self.plan.global_batch

    @property
    def grouping(self) -> str:
        return self.plan.grouping

    @property
    def left_out(self) -> int:
        """Samples that each of the source's own epochs leaves out. Low is good."""
        return self.plan.left_out

    @property
    def repeated(self) -> int:
        """Samples that each of the source's own epochs takes once more. Low is good."""
        return self.plan.repeated

    @property
    def empty_parts(self) -> int:
        return self.plan.empty_parts

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's part of the source's batch number `step`, whose `epoch` and `step` are the source's own."""
        return self.plan.batch(*divmod(step, self.plan.steps))

    def key(self, epoch: int) -> int:
        return self.plan.key(epoch)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        return self.plan.replacement(epoch, position, attempt)


@dataclass(frozen=True)
class SourceSamples(SourceBatches):
    """A source's samples in each of the mixture's batches: those of position q are number q mod length of the source's
    own epoch q // length. A batch that holds none of them has an empty part.

    Positions count through all epochs. Views are drawn by the mixture's epoch, and by the source's own as the pass, so
    a sample that comes again gets another one, also within a batch.
    """

    mixture: Mixture
    source: int

    @property
    def left_out(self) -> int:
        return 0

    @property
    def repeated(self) -> int:
        return 0

    @property
    def empty_parts(self) -> int:
        return 0

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """This rank's samples of the source in the mixture's batch at `step` of `epoch`."""
        first = (epoch * self.steps + step) * self.global_batch + self.rank * self.batch_size
        edges = self.mixture.before(np.array([first, first + self.batch_size], np.int64))
        positions = np.arange(*edges[:, self.source], dtype=np.int64)
        epochs, within = np.divmod(positions, self.length)
        samples = np.empty_like(positions)
        for each in np.unique(epochs).tolist():
            rows = epochs == each
            samples[rows] = order.samples_at(
                within[rows], length=self.length, shuffle=self.shuffle, seed=self.seed, epoch=each
            )
        passes = (epochs % FIRST_REPLACEMENT_PASS).astype(np.uint32)
        return BatchPlan(epoch, step, samples, passes, positions)


# -- from plan/shares.py: Weights as whole numbers: how many positions of a window each source gets.


MAX_WINDOW = 1 << 30
"""Keeps the products of a place in a window and a count below 64 bits."""

_DENOMINATOR = 10**6
"""A float within 10^-9 of a fraction of at most this denominator means that fraction: 0.1 is a tenth."""


def counts_of(weights: Mapping[str, float]) -> tuple[int, ...]:
    """The smallest whole numbers in the proportions of `weights`, which are at least one and above 0.

    Where their sum would exceed 2^30, they sum to 2^30 and no share is off by more than 2^-29. Raises UsageError for a
    weight that is none.
    """
    fractions = {name: _fraction(name, weight) for name, weight in weights.items()}
    total = sum(fractions.values(), Fraction(0))
    shares = [fraction / total for fraction in fractions.values()]
    window = math.lcm(*(share.denominator for share in shares))
    if window <= MAX_WINDOW:
        return tuple(int(share * window) for share in shares)
    for name, share in zip(fractions, shares, strict=True):
        if share * MAX_WINDOW < 1:
            raise UsageError(
                f"weights[{name!r}]: expected a share of at least 1 in {MAX_WINDOW}, got {float(share):.3g}; leave the "
                "source out, or raise its weight"
            )
    return _rounded(shares)


def _rounded(shares: list[Fraction]) -> tuple[int, ...]:
    """By the largest remainders, so that they sum to the window."""
    counts = [int(share * MAX_WINDOW) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: counts[i] - shares[i] * MAX_WINDOW)
    for i in by_remainder[: MAX_WINDOW - sum(counts)]:
        counts[i] += 1
    return tuple(counts)


def _fraction(name: str, weight: object) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, Real):
        raise UsageError(f"weights[{name!r}]: expected a number above 0, got {weight!r}")
    if weight == 0:
        raise UsageError(f"weights[{name!r}]: expected a number above 0, got {weight!r}; leave the source out")
    if not 0 < float(weight) < math.inf:
        raise UsageError(f"weights[{name!r}]: expected a finite number above 0, got {weight!r}")
    if isinstance(weight, Rational):
        return Fraction(int(weight.numerator), int(weight.denominator))
    exact = Fraction(float(weight))
    simple = exact.limit_denominator(_DENOMINATOR)
    return simple if abs(simple - exact) <= exact / 10**9 else exact
