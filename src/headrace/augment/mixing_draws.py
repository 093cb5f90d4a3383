"""Random draws of batch mixing: the blend weight or the exchanged box of each pair of images.

All functions are pure: a draw depends on the epoch's key, the step and, with `mode="pair"`, the pair's position in the
global batch. They use only + - * / sqrt and the core's own exp and log, so that every machine draws the same bits.

Draws are at (step, pair, stage 253, draw) of the random source (core/rng/stream.hpp), with pair 0 if all pairs share:
  draw 0       whether to mix; which mixing of a RandomChoice
  draw 1       the centre of CutMix's box
  draws 2, …   lambda, by rejection
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import ReservedStage
from headrace.augment.combinators import RandomChoice
from headrace.augment.mixing import Mixing, MixUp
from headrace.errors import UsageError

ONE = 1 << 15
"""Unit of blend weights, which are multiples of 1 / ONE: exact in float32 and in the core's fixed point."""

_STAGE = ReservedStage.MIXING << 8
_MOST_TRIES = 126
"""Maximum attempts to draw a lambda. Each succeeds with a probability of at least 0.5."""

AnyMixing: TypeAlias = Mixing | RandomChoice


@dataclass(frozen=True, eq=False)
class DrawnMixing:
    """Drawn mixing parameters of some pairs."""

    pairs: NDArray[np.int32]
    """Rows for the core (core/augment/mixing.hpp), [pairs, 5]: weight of an image's own pixels in 1 / ONE (ONE: no
    blend), and left, top, right, bottom of the exchanged box (0 0 0 0: none)."""
    shares: NDArray[np.float64]
    """Weight of each image's own label, [pairs]."""

    @classmethod
    def none(cls, pairs: int) -> DrawnMixing:
        rows = np.zeros((pairs, 5), np.int32)
        rows[:, 0] = ONE
        return cls(rows, np.ones(pairs))


def choices_of(mixing: AnyMixing) -> tuple[Mixing, ...]:
    """Return the mixings to draw from. Raises UsageError for any other type, and if their common arguments differ."""
    choices: list[Mixing] = []
    for each in mixing.transforms if isinstance(mixing, RandomChoice) else (mixing,):
        if not isinstance(each, Mixing):
            raise UsageError(
                f"batch: expected hr.MixUp(…), hr.CutMix(…) or hr.RandomChoice([…]) of them, got {each!r}; "
                "augmentations of single images go into augment="
            )
        choices.append(each)
    for name in ("labels", "field", "num_classes", "label_smoothing"):
        values = {getattr(each, name) for each in choices}
        if len(values) > 1:
            raise UsageError(
                f"batch: expected one {name} for all of a RandomChoice, got {' and '.join(map(repr, values))}"
            )
    return tuple(choices)


def draw_mixing(
    mixing: AnyMixing, *, key: int, step: int, first_pair: int, pairs: int, size: tuple[int, int]
) -> DrawnMixing:
    """Draw the mixing of `pairs` pairs of a global batch, starting at pair `first_pair`.

    `key` is the epoch's, `size` the images' (height, width). A RandomChoice is drawn for the batch, or for each pair if
    all its mixings have `mode="pair"`.
    """
    choices = choices_of(mixing)
    by_pair = all(each.mode == "pair" for each in choices)
    places = np.arange(first_pair, first_pair + pairs)
    of_batch, of_pairs = _Words(key, step, np.zeros(1, np.int64)), _Words(key, step, places)
    weights = mixing.p if isinstance(mixing, RandomChoice) and mixing.p is not None else (1.0,) * len(choices)
    edges = np.cumsum(weights) / sum(weights)
    found = DrawnMixing.none(pairs)
    for place in range(pairs):
        at = (of_pairs, place) if by_pair else (of_batch, 0)
        chosen = choices[min(int(np.searchsorted(edges, _unit(at[0].at(at[1], 0)[1]), side="right")), len(choices) - 1)]
        words, row = (of_pairs, place) if chosen.mode == "pair" else (of_batch, 0)
        found.pairs[place], found.shares[place] = _draw(chosen, words, row, size)
        if chosen.mode == "batch" and not by_pair:
            found.pairs[:], found.shares[:] = found.pairs[0], found.shares[0]
            break
    return found


class _Words:
    """Random words of some pairs, with the first few draws precomputed for all pairs."""

    _AHEAD = 8

    def __init__(self, key: int, step: int, pairs: NDArray[np.int64]) -> None:
        self._key = key
        counters = np.empty((len(pairs), self._AHEAD, 4), np.uint32)
        counters[..., 0], counters[..., 1] = step & 0xFFFF_FFFF, step >> 32
        counters[..., 2] = pairs[:, None]
        counters[..., 3] = _STAGE | np.arange(self._AHEAD)
        self._counters = counters
        self._words = _paired(_core.philox(key, counters))

    def at(self, row: int, draw: int) -> tuple[int, int]:
        """Return a draw's two words of 64 random bits."""
        if draw < self._AHEAD:
            first, second = self._words[row, draw].tolist()
        else:
            counter = self._counters[row, 0].copy()
            counter[3] = _STAGE | draw
            first, second = _paired(_core.philox(self._key, counter)).tolist()
        return first, second


def _paired(words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    wide = words.astype(np.uint64)
    return wide[..., ::2] | wide[..., 1::2] << np.uint64(32)


def _draw(mixing: Mixing, words: _Words, row: int, size: tuple[int, int]) -> tuple[Sequence[int], float]:
    """Return one pair's row for the core and the weight of its own label."""
    if _unit(words.at(row, 0)[0]) >= mixing.p:
        return (ONE, 0, 0, 0, 0), 1.0
    lam = _beta(mixing.alpha, words, row)
    if isinstance(mixing, MixUp):
        weight = math.floor(lam * ONE + 0.5)
        return (weight, 0, 0, 0, 0), weight / ONE
    height, width = size
    box = _cut_box(lam, height, width, words.at(row, 1))
    left, top, right, bottom = box
    return (ONE, *box), 1.0 - (right - left) * (bottom - top) / (width * height)


def _cut_box(lam: float, height: int, width: int, words: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return left, top, right, bottom of CutMix's box, rounded and clipped like torchvision's."""
    x, y = words[0] * width >> 64, words[1] * height >> 64
    half = 0.5 * math.sqrt(1.0 - lam)
    half_width, half_height = int(half * width), int(half * height)
    return max(x - half_width, 0), max(y - half_height, 0), min(x + half_width, width), min(y + half_height, height)


def _unit(bits: int) -> float:
    return (bits >> 11) * 2.0**-53


def _inside(bits: int) -> float:
    """Return a number strictly between 0 and 1."""
    return ((bits >> 12) + 0.5) * 2.0**-52


def _beta(alpha: float, words: _Words, row: int) -> float:
    """Draw from Beta(alpha, alpha)."""
    if alpha == 1:
        return _unit(words.at(row, 2)[0])
    for draw in range(2, 2 + _MOST_TRIES):
        first, second = map(_inside, words.at(row, draw))
        found = _by_joehnk(alpha, first, second) if alpha < 1 else _by_cheng(alpha, first, second)
        if found is not None:
            return found
    return 0.5


def _by_joehnk(alpha: float, u: float, v: float) -> float | None:
    """Return x / (x + y) for x = u^(1/alpha) and y = v^(1/alpha) if x + y <= 1, else None (Jöhnk, 1964).

    Computes in logarithms: for a small alpha both powers may underflow a double.
    """
    log_x, log_y = _core.exact_log(u) / alpha, _core.exact_log(v) / alpha
    if _exp(log_x) + _exp(log_y) > 1:
        return None
    apart = log_y - log_x
    return 0.0 if apart > _FAR else 1.0 / (1.0 + _exp(apart))


_FAR = 700.0
"""Largest |x| for which e^x is safe in a double."""


def _exp(x: float) -> float:
    return 0.0 if x < -_FAR else _core.exact_exp(x)


def _by_cheng(alpha: float, u: float, v: float) -> float | None:
    """Return a draw of Cheng's algorithm BB for a = b = `alpha` > 1, None if rejected (CACM 21, 1978)."""
    both = alpha + alpha
    beta = math.sqrt((both - 2) / (2 * alpha * alpha - both))
    log_odds = beta * (_core.exact_log(u) - _core.exact_log(1 - u))
    if abs(log_odds) > _FAR:
        return None
    w = alpha * _core.exact_exp(log_odds)
    z = u * u * v
    r = (alpha + 1 / beta) * log_odds - _LOG_4
    s = alpha + r - w
    if s + _CHENG >= 5 * z:
        return w / (alpha + w)
    limit = _core.exact_log(z)
    if s >= limit or r + both * (_core.exact_log(both) - _core.exact_log(alpha + w)) >= limit:
        return w / (alpha + w)
    return None


_LOG_4 = 1.3862943611198906
_CHENG = 2.6094379124341003
"""Constant 1 + ln 5."""
