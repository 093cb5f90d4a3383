"""Mixture of several sources: exact proportions, and the plan of each source within them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational, Real
from typing import Any, Literal, TypeAlias

import numpy as np

from headrace import _core
from headrace.errors import UsageError
from headrace.plan.order import FIRST_REPLACEMENT_PASS, BatchPlan
from headrace.plan.packed_plan import PackedPlan
from headrace.plan.shaped_plan import ShapedPlan
from headrace.plan.step_views import Ints
from headrace.plan.uniform_plan import UniformPlan

Until: TypeAlias = Literal["largest", "smallest"]

MIXTURE_VERSION = 1
"""Part of every saved state. Raise it with any change to the sources' positions."""

MAX_WINDOW = 1 << 30
"""Maximum window: the product of a place in a window and a count stays below 64 bits."""

_DENOMINATOR = 10**6
"""Maximum denominator: a float within 10^-9 of such a fraction means that fraction (0.1 is a tenth)."""

_WINDOWS = 1 << 48
_TURN_BITS = 32


@dataclass(frozen=True)
class Mixture:
    """Source of every position of a mixture, in exact proportions.

    Endless positions are cut into windows of `window`; source i has `counts[i]` positions of every window. Within a
    window each source's positions are spread evenly, like the pixels of a slanted line (J. E. Bresenham, "Algorithm for
    computer control of a digital plotter", 1965). The heaviest source takes its positions first, the next one takes its
    own from the remaining positions, and so on. A keyed draw rotates each window, so that a source does not always fall
    on the same place of a batch.
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
        """Count the positions that each source has below each of `positions` [N]: int64 [N, sources]."""
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
        """Return the source of each position from `start` to `stop`, and its number within that source. int64 [N]."""
        taken = self.before(np.arange(start, stop + 1, dtype=np.int64))
        sources = np.diff(taken, axis=0).argmax(axis=1)
        return sources, taken[np.arange(stop - start), sources]

    def taken(self, position: int) -> list[int]:
        """Count the positions that each source has below `position`. Raises UsageError beyond the countable range."""
        most = min(self.window * _WINDOWS, 1 << 62)
        if position >= most:
            raise UsageError(f"mixture: expected an epoch below {most} batches or samples in all, got {position}")
        found: list[int] = self.before(np.array([position], np.int64))[0].tolist()
        return found

    @cached_property
    def deviations(self) -> list[Fraction]:
        """Upper bounds on the deviation of a source's positions from its share, below any place of a window."""
        found, of_rest, wide = [Fraction(0)] * len(self.counts), Fraction(0), self.window
        for source in self._order:
            share = Fraction(self.counts[source], wide)
            last = share == 1
            found[source] = of_rest if last else share * of_rest + 1
            of_rest, wide = (1 - share) * of_rest + 1, wide - self.counts[source]
        return found

    def steps_of_epoch(self, lengths: list[int], *, until: Until, positions_a_step: int) -> int:
        """Return the fewest steps of an epoch in which sources come at least as often as `lengths`.

        This holds in any epoch for all of them ("largest") or for one of them ("smallest"). Either an epoch's edges
        coincide with edges of windows, where counts are exact, or there are enough steps to spare.
        """
        fit = max if until == "largest" else min
        needed = [Fraction(length) / share for length, share in zip(lengths, self.shares, strict=True)]
        # Fewer than this many are missing, so one less suffices to have them all.
        spare = [
            max(2 * most - 1, Fraction(0)) / share for most, share in zip(self.deviations, self.shares, strict=True)
        ]
        of_windows = self.window // math.gcd(self.window, positions_a_step)
        exact = math.ceil(fit(needed) / (positions_a_step * of_windows)) * of_windows
        loose = math.ceil(fit(map(sum, zip(needed, spare, strict=True))) / positions_a_step)
        return min(exact, loose)

    @cached_property
    def _order(self) -> list[int]:
        """Sources, heaviest first, which minimises the deviations of the others."""
        return sorted(range(len(self.counts)), key=lambda source: -self.counts[source])

    def _turns(self, level: int, windows: Ints, wide: int) -> Ints:
        """Draw the rotation of each window, below `wide`."""
        key = _core.hash64(_core.hash64(self.seed, level), wide)
        drawn = _core.permute(_WINDOWS, key, windows) >> (_WINDOWS.bit_length() - 1 - _TURN_BITS)
        return drawn * wide >> _TURN_BITS


@dataclass(frozen=True)
class SourceBatches:
    """Plan of one source of a mixture: its own batches, numbered through from its first epoch, up to `steps`.

    All other attributes are the source plan's: `left_out`, for example, counts in each of the source's epochs.
    """

    plan: EpochPlan
    steps: int

    def __getattr__(self, name: str) -> Any:
        if name == "plan" or name.startswith("__"):  # copy and pickle look these up before there is a plan
            raise AttributeError(name)
        return getattr(self.plan, name)

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """Return this rank's part of the source's batch number `step`; its `epoch` and `step` are the source's own."""
        return self.plan.batch(*divmod(step, self.plan.steps))


@dataclass(frozen=True)
class SourceSamples(SourceBatches):
    """Plan of one source's samples in each of the mixture's batches.

    The sample of position q is number q mod length of the source's own epoch q // length. A batch without any of them
    has an empty part.

    Positions count through all epochs. Views are drawn by the mixture's epoch, and by the source's own as the pass, so
    a repeated sample gets another view, also within a batch.
    """

    plan: UniformPlan
    mixture: Mixture
    source: int

    left_out = repeated = empty_parts = 0

    def batch(self, epoch: int, step: int) -> BatchPlan:
        """Return this rank's samples of the source in the mixture's batch at `step` of `epoch`."""
        first = (epoch * self.steps + step) * self.global_batch + self.rank * self.batch_size
        edges = self.mixture.before(np.array([first, first + self.batch_size], np.int64))
        positions = np.arange(*edges[:, self.source], dtype=np.int64)
        epochs, within = np.divmod(positions, self.length)
        samples = np.empty_like(positions)
        for each in np.unique(epochs).tolist():
            rows = epochs == each
            samples[rows] = self.plan.shuffled(within[rows], count=self.length, epoch=each)
        passes = (epochs % FIRST_REPLACEMENT_PASS).astype(np.uint32)
        return BatchPlan(epoch, step, samples, passes, positions)

    def replacement(self, epoch: int, position: int, attempt: int) -> tuple[int, int]:
        """Return the replacement of a bad sample; in a windowed order it comes from the same window."""
        if self.plan.window is None:
            return self.plan.replacement(epoch, position, attempt)
        of_source, within = divmod(position, self.plan.length)
        return self.plan.replacement(of_source, within, attempt)


EpochPlan: TypeAlias = UniformPlan | ShapedPlan | PackedPlan | SourceBatches
"""Plan of any kind: the samples of this rank at each step of each epoch. Every rank takes `steps` steps."""


def counts_of(weights: Mapping[str, float]) -> tuple[int, ...]:
    """Return the smallest integers in the proportions of `weights`, of which there is at least one, all above 0.

    If their sum would exceed 2^30, they sum to 2^30 and no share differs by more than 2^-29. Raises UsageError for an
    invalid weight.
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
    # Rounded by the largest remainders, so that the counts sum to the window.
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
