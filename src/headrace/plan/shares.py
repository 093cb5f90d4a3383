"""Weights as whole numbers: how many positions of a window each source gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from numbers import Rational, Real

from headrace.errors import UsageError

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
