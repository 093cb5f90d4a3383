"""Comparison of a leaf that both loaders draw at random, and of what the comparison would have shown. Pure.

Paired tests rest on symmetry: between equal loaders the difference of a statistic between the one's makings of a sample
and the other's is as likely as its opposite. Each fault of `FAULTS` is then planted in what was observed, and the same
tests tell whether it would have been seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from headrace.tools.equal.observing import THUMBNAIL, Floats, overlaps
from headrace.tools.equal.orientation import matches
from headrace.tools.equal.pairing import Ints, Pairing
from headrace.tools.equal.values import ValueScale, scale_of

FALSE_ALARMS = 0.001
"""Share of comparisons of two equal loaders with any `distribution` difference, at most."""
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
_MOST_VALUES = 64
"""Different integers up to which the share of each is compared."""
_SMALLER = -math.log(0.9) / 2
"""Logarithm of the sides of windows by those of 10 % less area."""
_SHOWN = 0.5
"""Share of a difference in scale that matches show, at least: between windows of about one size they are clearer."""
Planted: TypeAlias = dict[str, float]


@dataclass(frozen=True)
class Test:
    """Test statistic, normally distributed between equal loaders, and what planted faults would make of it."""

    what: str
    z: float
    texts: tuple[str, str]
    planted: Planted = field(default_factory=dict)
    samples: int = 0
    """Samples of the test."""


@dataclass(frozen=True)
class DrawnLeaf:
    """Leaf of the samples in all epochs; if they are not paired, of samples at the same places."""

    name: str
    pairing: Pairing
    rows: Ints
    """int64[samples, epochs]."""
    scale: ValueScale
    kind: str
    """Kind of the dtype; empty for texts."""

    def statistics(self) -> Iterator[tuple[str, Floats]]:
        """Yield each statistic by name: float64[samples, epochs]."""
        tables = [epoch.leaves[self.name].statistics for epoch in self.pairing.epochs]
        rows = self.rows
        for key in tables[0]:
            if all(key in table for table in tables):
                yield key, np.stack([table[key][rows[:, n]] for n, table in enumerate(tables)], axis=1)

    def tolerance(self, key: str, values: Floats) -> Floats:
        """Return how far rounding moves a statistic."""
        if not self.scale.is_pixels:
            return np.asarray(self.level(key) * self.scale.rounding)
        level, size = self.level(key), np.abs(values).mean(axis=1)
        if key in ("sharpness", "saturation") or key.startswith("deviation"):
            return np.asarray(np.hypot(size, 0.7 * level) - size + 0.005 * size)
        return np.asarray(level * (0.5 if key.startswith(("lowest", "highest")) else 0.25))

    def level(self, key: str) -> float:
        """Return the size of a level in a statistic's channel."""
        channel = key.rpartition("channel ")[2] if "channel " in key else ""
        return float(self.scale.step[int(channel), 0] if channel else self.scale.step.mean())


def drawn_tests(name: str, pairing: Pairing) -> Iterator[Test]:
    """Yield the tests of a leaf that both loaders draw; without pairs, those that need none and show no fault."""
    leaves = [epoch.leaves[name] for epoch in pairing.epochs]
    kinds = {sketch.dtype.kind for leaf in leaves for sketch in leaf.sketches if sketch.size}
    rows, is_paired = pairing.complete, bool(len(pairing.complete))
    if not is_paired:
        rows = np.tile(np.arange(min(epoch.samples for epoch in pairing.epochs))[:, None], (1, len(leaves)))
    scale = scale_of(leaves[0], leaves[pairing.makings])
    leaf = DrawnLeaf(name, pairing, rows, scale, min(kinds, default=""))
    tests = [test for key, values in leaf.statistics() for test in _statistic_tests(leaf, key, values)]
    if leaf.kind in ("b", "i", "u") and not scale.is_pixels:
        tests += _shares(leaf)
    if is_image := all(len(one.thumbnails) == len(one.digests) for one in leaves):
        tests += _details(leaf)
    if not is_paired:
        yield from (replace(test, planted={}) for test in tests)
        return
    yield from tests
    yield from _repeats(leaf)
    if is_image:
        yield from _matches(leaf)


def faults_of(name: str, pairing: Pairing) -> list[str]:
    """Return the faults that a leaf of this kind can have."""
    leaf = pairing.epochs[0].leaves[name]
    if not any(sketch.size for sketch in leaf.sketches):
        return ["choice"]
    geometry = ["flip", "scale"] if leaf.thumbnails else []
    is_float = any(sketch.dtype.kind == "f" for sketch in leaf.sketches) or "mean of channel 2" in leaf.statistics
    return [*geometry, "mean", *(["deviation"] if is_float else [])]


def least_z(tests: int) -> float:
    """Return the statistic from which one of so many tests proves a difference."""
    return NormalDist().inv_cdf(1 - FALSE_ALARMS / 2 / max(tests, 1))


def samples_to_show(fault: str, tests: list[Test], threshold: float) -> int | None:
    """Return the samples with which a fault would be seen 99 times in 100: 0 if these are enough, None if unknown."""
    best = max(tests, key=lambda test: test.planted.get(fault, 0.0), default=None)
    z = 0.0 if best is None else best.planted.get(fault, 0.0)
    if best is None or z <= 0.05:
        return None
    needed = math.ceil(best.samples * ((threshold + _POWER) / z) ** 2)
    return 0 if z >= threshold + _POWER else max(needed, best.samples + 1)


def _statistic_tests(leaf: DrawnLeaf, key: str, values: Floats) -> Iterator[Test]:
    """Yield tests of a statistic's location, and of its spread between the makings of a sample."""
    one, other = np.split(values, 2, axis=1)
    tolerance, level = leaf.tolerance(key, values), leaf.level(key)
    planted: dict[str, Floats] = {}
    means = other.mean(axis=1)
    if key == "value" or key.startswith(("mean", "lowest", "highest")):
        planted["mean"] = np.full(len(means), level)
    if key.startswith("deviation"):
        planted["deviation"] = 0.03 * np.abs(means)
    elif key.startswith(("lowest", "highest")) and leaf.kind == "f":
        centre = dict(leaf.statistics())[key.replace("lowest", "mean").replace("highest", "mean")]
        planted["deviation"] = 0.03 * np.abs(other - centre[:, one.shape[1] :]).mean(axis=1)
    yield _location(key, one, other, tolerance, planted)
    spreads = [np.abs(np.diff(part, axis=1)).mean(axis=1) for part in (one, other)]
    stretched = {"deviation": 0.03 * spreads[1]} if key == "value" else {}
    yield _location(f"{key}, spread", spreads[0][:, None], spreads[1][:, None], tolerance, stretched)


def _location(what: str, one: Floats, other: Floats, tolerance: Floats, planted: dict[str, Floats]) -> Test:
    differences = other.mean(axis=1) - one.mean(axis=1)
    shown = {}
    for fault, shift in planted.items():
        both = [_beyond(differences + sign * shift, tolerance) for sign in (1, -1)]
        shown[fault] = sum(both) / 2
    texts = [f"{each.mean():.4g} ± {each.std():.4g}" for each in (one, other)]
    return Test(what, _beyond(differences, tolerance), (texts[0], texts[1]), shown, len(differences))


def _beyond(differences: Floats, tolerance: Floats) -> float:
    """Return the signed-rank statistic of differences beyond a tolerance on either side."""
    return max(_signed_rank(differences - tolerance), _signed_rank(-differences - tolerance), 0.0)


def _signed_rank(differences: Floats) -> float:
    """Return Wilcoxon's signed-rank statistic over its deviation, given the ranks."""
    _, place, counts = np.unique(np.abs(differences), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place] * np.sign(differences)
    size = float(np.linalg.norm(ranks))
    return float(ranks.sum()) / size if size else 0.0


def _repeats(leaf: DrawnLeaf) -> Iterator[Test]:
    """Yield tests of how often two makings of a sample are the same, within a loader and between the two."""
    makings, rows = leaf.pairing.makings, leaf.rows.tolist()
    digests = [epoch.leaves[leaf.name].digests for epoch in leaf.pairing.epochs]
    drawn = [[digests[n][at] for n, at in enumerate(row)] for row in rows]
    columns = range(makings), range(makings, 2 * makings)
    within = [np.array([[row[a] == row[b] for a, b in pairwise(part)] for row in drawn], float) for part in columns]
    between = np.array([[row[a] == row[b] for a in columns[0] for b in columns[1]] for row in drawn], float)
    one, other = (part.mean(axis=1) for part in within)
    texts = (f"{one.mean():.4g}", f"{other.mean():.4g}")
    lost = np.minimum(one.mean(), other.mean())
    shown = {"choice": math.sqrt(lost * len(one)) * math.sqrt(max(0.0, 1 - lost)) if leaf.kind == "" else 0.0}
    yield Test("share of the same twice", _beyond(other - one, np.zeros(1)), texts, shown, len(one))
    fewer = (one + other) / 2 - between.mean(axis=1)
    error = float(fewer.std()) / math.sqrt(len(fewer))
    is_enough = np.count_nonzero(fewer) >= 20
    z = float(fewer.mean()) / error if is_enough and error else 0.0
    texts = (f"{(one + other).mean() / 2:.4g} within a loader", f"{between.mean():.4g} between them")
    yield Test("share of the same in both", max(z, 0.0), texts)


def _shares(leaf: DrawnLeaf) -> Iterator[Test]:
    """Yield tests of how often each integer occurs."""
    rows = leaf.rows
    sketches = [
        [epoch.leaves[leaf.name].sketches[at].ravel() for at in rows[:, n].tolist()]
        for n, epoch in enumerate(leaf.pairing.epochs)
    ]
    known, counts = np.unique(np.concatenate([each for part in sketches for each in part]), return_counts=True)
    if len(known) > 16 * _MOST_VALUES:
        return
    for value in known[np.argsort(counts)[::-1][:_MOST_VALUES]].tolist():
        shares = np.array(
            [[float((each == value).mean()) if each.size else 0.0 for each in part] for part in sketches]
        ).T
        yield _location(f"share of {value}", *np.split(shares, 2, axis=1), np.zeros(1), {})


def _details(leaf: DrawnLeaf) -> Iterator[Test]:
    """Yield tests of how fine the pictures' details are, and how much finer across than down.

    A smaller window shows coarser details: the middle of a thumbnail tells how much. Edges are off the pixels' grid,
    as those on it blur less.
    """
    whole, middle = [], []
    for column, rows in enumerate(leaf.rows.T):
        thumbnails = leaf.pairing.thumbnails(leaf.name, column, rows)
        for found, margin in ((whole, 0.01), (middle, 0.01 + 0.49 * (1 - math.exp(-_SMALLER)))):
            zoom = overlaps(THUMBNAIL, THUMBNAIL // 4, margin).astype(np.float32)
            found.append(_gradients(zoom @ thumbnails @ zoom.T))
    table, zoomed = np.stack(whole, axis=1), np.stack(middle, axis=1)
    detail, aspect = np.log(table.sum(axis=2)) / 2, np.log(table[:, :, 0] / table[:, :, 1]) / 2
    one, other = np.split(detail, 2, axis=1)
    effect = (np.log(zoomed.sum(axis=2)) / 2 - detail).mean(axis=1)
    yield _location("detail", one, other, np.full(1, 0.005), {"scale": effect})
    for what, values in (("detail, spread", detail), ("across against down, spread", aspect)):
        spreads = [np.abs(np.diff(part, axis=1)).mean(axis=1)[:, None] for part in np.split(values, 2, axis=1)]
        yield _location(what, spreads[0], spreads[1], np.full(1, 0.005), {})


def _gradients(pictures: np.typing.NDArray[np.float32]) -> Floats:
    """Return the mean square of the steps across and down, float64[pictures, 2], above zero."""
    across, down = np.square(np.diff(pictures, axis=2)), np.square(np.diff(pictures, axis=1))
    both = np.stack([across.mean(axis=(1, 2)), down.mean(axis=(1, 2))], axis=1).astype(np.float64)
    return np.asarray(both + 1e-6 * both.mean() + 1e-30)


def _matches(leaf: DrawnLeaf) -> Iterator[Test]:
    """Yield tests of how often one making of a sample is the mirror image of another, and of their windows' sizes."""
    pairing, rows = leaf.pairing, leaf.rows[:_MOST_MATCHED]
    n, columns = pairing.makings, range(len(pairing.epochs))
    first = [pairing.thumbnails(leaf.name, column, rows[:, column]) for column in columns]
    (one, _), (other, _), (cross, larger), (back, smaller) = (
        matches(first[a], first[b]) for a, b in ((0, 1), (n, n + 1), (0, n), (n + 1, 1))
    )
    strangers, _ = matches(first[0][:200], np.roll(first[1][:200], 1, axis=0))
    yield from _mirrored(one, other, cross, float((strangers >= 0).mean()))
    is_clear = [(each >= 0).astype(float) for each in (cross, back)]
    clear = sum(each.sum() for each in is_clear)
    centre = sum(float(each @ size) for each, size in zip(is_clear, (larger, smaller), strict=True)) / max(clear, 1)
    ahead = ((smaller - centre) * is_clear[1] - (larger - centre) * is_clear[0])[:, None]  # of the second loader
    planted = {"scale": _SMALLER * _SHOWN * (is_clear[0] + is_clear[1])} if clear >= 30 else {}
    yield _location("window by the other's", np.zeros_like(ahead), ahead, np.zeros(1), planted)


def _mirrored(one: Ints, other: Ints, cross: Ints, by_chance: float) -> Iterator[Test]:
    """Yield tests of turns within both loaders, and between them; a match by chance has any of them."""
    clear = min(float((each >= 0).mean()) for each in (one, other))
    certain = max(0.0, 1 - by_chance / max(clear, 1e-9))
    for what, chosen in (("mirrored", (1, 3)), ("upside down", (2, 3))):
        (j, m), (k, n), (i, between) = (_counted(each, chosen) for each in (one, other, cross))
        lost = 0.5 * certain / math.sqrt(0.25 / m + 0.25 / n) if min(m, n) >= 30 else 0.0
        z = abs(_proportions(j, m, k, n))
        yield Test(f"{what}, making to making", z, (f"{j} of {m}", f"{k} of {n}"), {"flip": lost}, len(one))
        z = max(_proportions(j + k, m + n, i, between), 0.0)
        yield Test(f"{what}, loader to loader", z, (f"{j + k} of {m + n} within", f"{i} of {between} between"))


def _counted(found: Ints, chosen: tuple[int, ...]) -> tuple[int, int]:
    clear = found[found >= 0]
    return int(np.isin(clear, chosen).sum()), len(clear)


def _proportions(one: int, m: int, other: int, n: int) -> float:
    """Return the statistic of two shares, by how much the second is larger."""
    if min(m, n) < 10:
        return 0.0
    share = (one + other + 1) / (m + n + 2)
    return (other / n - one / m) / math.sqrt(share * (1 - share) * (1 / m + 1 / n))
