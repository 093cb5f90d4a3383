"""Which source of a mixture stands at which position: exact proportions, computed for any position alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.errors import UsageError

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
