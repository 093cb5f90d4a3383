"""Comparison of a leaf that both loaders draw at random, and of what the comparison would have shown. Pure.

Paired tests rest on symmetry: between equal loaders the difference of a statistic between the one's makings of a sample
and the other's is as likely as its opposite. Each fault of `FAULTS` is then planted in what was observed, and the same
tests show whether it would have been seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from statistics import NormalDist

import numpy as np

from headrace.compare.observation import SMALLER, Floats
from headrace.compare.orientation import matches
from headrace.compare.pairing import FALSE_ALARMS, Ints, Pairing
from headrace.compare.values import ValueScale, scale_of

FAULTS = {
    "flip": "a lost flip",
    "scale": "windows of 10 % less area",
    "mean": "a mean off by one level",
    "deviation": "a deviation off by 3 %",
    "choice": "a lost choice between texts",
}
"""Faults that a comparison by distribution has to show before it counts as equal."""
_POWER = NormalDist().inv_cdf(0.99)
_MOST_MATCHED = 600
"""Samples whose makings are matched by their thumbnails, at most: a lost flip shows in 100."""
_SHOWN = 0.5
"""Share of a difference in scale that matches show, at least: between windows of about one size they are clearer."""
_LOGARITHMIC = 0.005
"""Tolerance of statistics that are logarithms."""


@dataclass(frozen=True)
class Test:
    """Test statistic, normally distributed between equal loaders, and what planted faults would make of it."""

    what: str
    z: float
    texts: tuple[str, str]
    planted: dict[str, float] = field(default_factory=dict)
    samples: int = 0
    """Samples of the test."""


def drawn_tests(name: str, pairing: Pairing) -> list[Test]:
    """Return the tests of a leaf that both loaders draw; without pairs, those that need none and show no fault."""
    leaves = [epoch.leaves[name] for epoch in pairing.epochs]
    rows, is_paired = pairing.complete, bool(len(pairing.complete))
    if not is_paired:
        rows = np.tile(np.arange(min(epoch.samples for epoch in pairing.epochs))[:, None], (1, len(leaves)))
    keys = [key for key in leaves[0].statistics if all(key in leaf.statistics for leaf in leaves)]
    table = {key: np.stack([leaf.statistics[key][rows[:, n]] for n, leaf in enumerate(leaves)], 1) for key in keys}
    scale = scale_of(leaves[0], leaves[pairing.makings])
    tests = [test for key in keys for test in _statistic_tests(key, table, scale)]
    if not is_paired:
        return [replace(test, planted={}) for test in tests]
    return [*tests, *(_matches(name, pairing) if "detail" in table else [])]


def faults_of(name: str, pairing: Pairing) -> list[str]:
    """Return the faults that a leaf of this kind can have."""
    leaf = pairing.epochs[0].leaves[name]
    if "choice" in leaf.statistics:
        return ["choice"]
    is_many = any(sketch.dtype.kind == "f" and sketch.size > 1 for sketch in leaf.sketches)
    deviation = ["deviation"] if is_many or "mean of channel 2" in leaf.statistics else []
    return [*(["flip", "scale"] if leaf.thumbnails else []), "mean", *deviation]


def least_z(tests: int) -> float:
    """Return the statistic from which one of so many tests proves a difference."""
    return NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / max(tests, 1))


def samples_to_show(fault: str, tests: list[Test], threshold: float) -> int | None:
    """Return the samples with which a fault would be seen 99 times in 100: 0 if these are enough, None if unknown."""
    best = max(tests, key=lambda test: test.planted.get(fault, 0.0))
    z = best.planted.get(fault, 0.0)
    if z <= 0.05:
        return None
    needed = math.ceil(best.samples * ((threshold + _POWER) / z) ** 2)
    return 0 if z >= threshold + _POWER else max(needed, best.samples + 1)


def _statistic_tests(key: str, table: dict[str, Floats], scale: ValueScale) -> Iterator[Test]:
    """Yield tests of a statistic's location, and of its spread between the makings of a sample."""
    statistic, _, channel = key.partition(" of channel ")
    one, other = np.split(table[key], 2, axis=1)
    level = float(scale.step[int(channel), 0] if channel else scale.step.mean())
    tolerance: float | Floats = level * scale.rounding * (0.25 if statistic in ("mean", "colour") else 0.5)
    tolerance = _LOGARITHMIC if statistic in ("detail", "middle", "aspect") else tolerance
    if scale.is_pixels and statistic in ("deviation", "sharpness", "saturation"):  # their squares grow by rounding's
        size = table[key].mean(axis=1)
        tolerance = np.hypot(size, 0.7 * level) - size + 0.005 * size
    planted: dict[str, Floats] = {}
    if statistic in ("mean", "lowest", "highest"):
        planted["mean"] = np.full(len(other), level)
    if statistic in ("lowest", "highest") and scale.is_float:
        planted["deviation"] = 0.03 * np.abs(table[key] - table[f"mean of channel {channel}"]).mean(axis=1)
    elif statistic == "deviation":
        planted["deviation"] = 0.03 * other.mean(axis=1)
    elif statistic == "detail":
        planted["scale"] = (table["middle"] - table[key]).mean(axis=1)
    yield _location(key, one, other, tolerance, planted)
    spreads = [np.abs(np.diff(part, axis=1)).mean(axis=1, keepdims=True) for part in (one, other)]
    lost = {"choice": spreads[1][:, 0]} if statistic == "choice" else {}
    yield _location(f"{key}, spread", spreads[0], spreads[1], tolerance, lost)


def _location(what: str, one: Floats, other: Floats, tolerance: float | Floats, planted: dict[str, Floats]) -> Test:
    differences = other.mean(axis=1) - one.mean(axis=1)
    shown = {
        fault: sum(_beyond(differences + sign * shift, tolerance) for sign in (1, -1)) / 2
        for fault, shift in planted.items()
    }
    texts = [f"{each.mean():.4g} ± {each.std():.4g}" for each in (one, other)]
    return Test(what, _beyond(differences, tolerance), (texts[0], texts[1]), shown, len(differences))


def _beyond(differences: Floats, tolerance: float | Floats) -> float:
    """Return the signed-rank statistic of differences beyond a tolerance on either side."""
    return max(_signed_rank(differences - tolerance), _signed_rank(-differences - tolerance), 0.0)


def _signed_rank(differences: Floats) -> float:
    """Return Wilcoxon's signed-rank statistic over its deviation, given the ranks."""
    _, place, counts = np.unique(np.abs(differences), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place] * np.sign(differences)
    size = float(np.linalg.norm(ranks))
    return float(ranks.sum()) / size if size else 0.0


def _matches(name: str, pairing: Pairing) -> Iterator[Test]:
    """Yield tests of how often one making of a sample is the mirror image of another, and of their windows' sizes."""
    rows, n = pairing.complete[:_MOST_MATCHED], pairing.makings
    leaves = [epoch.leaves[name] for epoch in pairing.epochs]
    first = [np.stack([leaf.thumbnails[row] for row in rows[:, at].tolist()]) for at, leaf in enumerate(leaves)]
    (one, _), (other, _), (cross, larger), (back, smaller) = (
        matches(first[a], first[b]) for a, b in ((0, 1), (n, n + 1), (0, n), (n + 1, 1))
    )
    strangers, _ = matches(first[0][:200], np.roll(first[1][:200], 1, axis=0))
    by_chance = float((strangers >= 0).mean())
    yield from _turns("mirrored", (1, 3), one, other, cross, by_chance)
    yield from _turns("upside down", (2, 3), one, other, cross, by_chance)
    is_clear = np.stack([cross, back], axis=1) >= 0
    sizes = np.stack([larger, smaller], axis=1)
    sizes -= (sizes * is_clear).sum() / max(is_clear.sum(), 1)
    ahead = (sizes * is_clear) @ np.array([[-1], [1]])  # of the second loader
    planted = {"scale": SMALLER * _SHOWN * is_clear.sum(axis=1)}
    yield _location("window by the other's", np.zeros_like(ahead), ahead, 0.0, planted)


def _turns(what: str, turns: tuple[int, int], one: Ints, other: Ints, cross: Ints, by_chance: float) -> Iterator[Test]:
    """Yield tests of turns within both loaders, and between them; a match by chance has any turn."""
    (j, m), (k, n), (i, between) = (
        (int(np.isin(each, turns).sum()), int((each >= 0).sum())) for each in (one, other, cross)
    )
    certain = max(0.0, 1 - by_chance * len(one) / max(min(m, n), 1))
    planted = {"flip": certain / math.sqrt(1 / m + 1 / n)} if min(m, n) >= 30 else {}
    texts = f"{j} of {m}", f"{k} of {n}"
    yield Test(f"{what}, making to making", _proportions(j, m, k, n), texts, planted, len(one))
    texts = f"{j + k} of {m + n} within", f"{i} of {between} between"
    yield Test(f"{what}, loader to loader", _proportions(j + k, m + n, i, between), texts)


def _proportions(one: int, m: int, other: int, n: int) -> float:
    """Return the statistic of two shares."""
    if min(m, n) < 10:
        return 0.0
    share = (one + other + 1) / (m + n + 2)
    return abs(other / n - one / m) / math.sqrt(share * (1 - share) * (1 / m + 1 / n))
