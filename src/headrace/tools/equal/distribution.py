"""Comparison of a leaf that both loaders draw at random, and of what the comparison would have shown. Pure.

Paired tests rest on symmetry: between equal loaders the difference of a statistic between the one's makings of a sample
and the other's is as likely as its opposite. Each fault of `FAULTS` is then planted in what was observed, and the same
tests tell whether it would have been seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import NormalDist
from typing import TypeAlias

import numpy as np

from headrace.tools.equal.observing import THUMBNAIL, Floats, overlaps
from headrace.tools.equal.orientation import orientations
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
    """Leaf of the samples in all epochs, or of all samples if they are not paired."""

    name: str
    pairing: Pairing
    scale: ValueScale
    kind: str
    """Kind of the dtype; empty for texts."""

    def statistics(self) -> Iterator[tuple[str, Floats]]:
        """Yield each statistic by name: float64[samples, epochs]."""
        tables = [epoch.leaves[self.name].statistics for epoch in self.pairing.epochs]
        rows = self.pairing.complete
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
    leaf = DrawnLeaf(name, pairing, scale_of(leaves[0], leaves[pairing.makings]), min(kinds, default=""))
    if not len(pairing.complete):
        yield from _unpaired(leaf)
        return
    yield from _repeats(leaf)
    for key, values in leaf.statistics():
        yield from _statistic_tests(leaf, key, values)
    if leaf.kind in ("b", "i", "u") and not leaf.scale.is_pixels:
        yield from _shares(leaf)
    if all(len(one.thumbnails) == len(one.digests) for one in leaves):
        yield from _details(leaf)
        yield from _turns(leaf)


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
    if key.startswith(("mean", "lowest", "highest", "value")):
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
    makings, rows = leaf.pairing.makings, leaf.pairing.complete.tolist()
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
    rows = leaf.pairing.complete
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

    A smaller window shows coarser details: the middle of a thumbnail tells how much.
    """
    whole, middle = [], []
    for column, rows in enumerate(leaf.pairing.complete.T):
        thumbnails = leaf.pairing.thumbnails(leaf.name, column, rows)
        for found, margin in ((whole, 0.0), (middle, (1 - math.sqrt(0.9)) / 2)):
            zoom = overlaps(THUMBNAIL, THUMBNAIL // 2, margin).astype(np.float32)
            found.append(_gradients(zoom @ thumbnails @ zoom.T))
    table, zoomed = np.stack(whole, axis=1), np.stack(middle, axis=1)
    detail, aspect = np.log(table.sum(axis=2)) / 2, np.log(table[:, :, 0] / table[:, :, 1]) / 2
    effect = (np.log(zoomed.sum(axis=2)) / 2 - detail).mean(axis=1)
    one, other = np.split(detail, 2, axis=1)
    yield _location(
        "detail", one, other, np.full(1, 0.005), {"scale": np.full(len(one), abs(float(np.median(effect))))}
    )
    for what, values in (("detail, spread", detail), ("across against down, spread", aspect)):
        spreads = [np.abs(np.diff(part, axis=1)).mean(axis=1)[:, None] for part in np.split(values, 2, axis=1)]
        yield _location(what, spreads[0], spreads[1], np.full(1, 0.005), {})


def _gradients(pictures: np.typing.NDArray[np.float32]) -> Floats:
    """Return the mean square of the steps across and down, float64[pictures, 2], above zero."""
    across, down = np.square(np.diff(pictures, axis=2)), np.square(np.diff(pictures, axis=1))
    both = np.stack([across.mean(axis=(1, 2)), down.mean(axis=(1, 2))], axis=1).astype(np.float64)
    return np.asarray(both + 1e-6 * both.mean() + 1e-30)


def _turns(leaf: DrawnLeaf) -> Iterator[Test]:
    """Yield tests of how often one making of a sample is the mirror image of another."""
    pairing, rows = leaf.pairing, leaf.pairing.complete[:_MOST_MATCHED]
    first = [pairing.thumbnails(leaf.name, n, rows[:, n]) for n in range(len(pairing.epochs))]
    within = [orientations(first[n], first[n + 1]) for n in (0, pairing.makings)]
    between = orientations(first[0], first[pairing.makings])
    strangers = orientations(first[0][:200], np.roll(first[1][:200], 1, axis=0))
    clear = [float((each >= 0).mean()) for each in (*within, strangers)]
    certain = max(0.0, 1 - clear[2] / max(min(clear[:2]), 1e-9))  # a match by chance has any orientation
    for what, chosen in (("mirrored", (1, 3)), ("upside down", (2, 3))):
        (one, m), (other, n), (cross, k) = (_counted(each, chosen) for each in (*within, between))
        lost = 0.5 * certain / math.sqrt(0.25 / max(m, 1) + 0.25 / max(n, 1)) if min(m, n) >= 30 else 0.0
        texts = (f"{one} of {m}", f"{other} of {n}")
        yield Test(
            f"{what}, one making to another", abs(_proportions(one, m, other, n)), texts, {"flip": lost}, len(rows)
        )
        more = _proportions(one + other, m + n, cross, k)
        yield Test(
            f"{what}, one loader's to the other's", max(more, 0.0), (f"{one + other} of {m + n}", f"{cross} of {k}")
        )


def _counted(found: Ints, chosen: tuple[int, ...]) -> tuple[int, int]:
    clear = found[found >= 0]
    return int(np.isin(clear, chosen).sum()), len(clear)


def _proportions(one: int, m: int, other: int, n: int) -> float:
    """Return the statistic of two shares, by how much the second is larger."""
    if min(m, n) < 10:
        return 0.0
    share = (one + other + 1) / (m + n + 2)
    return (other / n - one / m) / math.sqrt(share * (1 - share) * (1 / m + 1 / n))


def _unpaired(leaf: DrawnLeaf) -> Iterator[Test]:
    """Yield rank tests of the first epochs' values, and of their distances from the median."""
    columns = [leaf.pairing.epochs[n].leaves[leaf.name].statistics for n in (0, leaf.pairing.makings)]
    for key in columns[0].keys() & columns[1].keys():
        one, other = (table[key] for table in columns)
        texts = tuple(f"{each.mean():.4g} ± {each.std():.4g}" for each in (one, other))
        yield Test(key, _rank_sum(one, other), (texts[0], texts[1]))
        apart = [np.abs(each - np.median(each)) for each in (one, other)]
        yield Test(f"{key}, spread", _rank_sum(*apart), (texts[0], texts[1]))


def _rank_sum(one: Floats, other: Floats) -> float:
    """Return the statistic of the Wilcoxon-Mann-Whitney test, corrected for ties."""
    _, place, counts = np.unique(np.concatenate([one, other]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    m, n = len(one), len(other)
    ties = float(((counts.astype(float) ** 3) - counts).sum()) / ((m + n) * (m + n - 1))
    variance = m * n / 12 * (m + n + 1 - ties)
    return abs(float(ranks[:m].sum()) - m * (m + n + 1) / 2) / math.sqrt(variance) if variance > 0 else 0.0
