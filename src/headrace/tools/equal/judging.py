"""Judgement on two loaders, from what was observed of each. Pure.

Leaves that are the same in both epochs of a loader are compared value by value. Leaves that a loader draws at random
are compared by distribution: the location of each statistic, its spread between two makings of the same sample, and
the agreement of the two. Two equal loaders give a false alarm in at most one of a thousand comparisons.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.tools.equal.observing import EpochObservation, Floats, LeafObservation, LoaderObservation

CODES = {
    "leaves": "A batch of one loader has a leaf that the other's has not.",
    "dtype": "Dtype, or number of dimensions.",
    "shape": "Shapes of a leaf.",
    "length": "Samples or batches in an epoch, or sizes of batches.",
    "samples": "Samples that one loader gives more often in an epoch, or not at all.",
    "order": "Order of an epoch: fixed, shuffled among neighbours, or shuffled.",
    "augmentation": "Values that one loader draws at random, and the other does not.",
    "values": "Values of a leaf that neither loader draws at random.",
    "rounding": "The same values up to rounding and resize filters.",
    "distribution": "Distribution of values that both loaders draw at random.",
}
"""Meaning of each difference by code."""
SCHEMA = 1
FALSE_ALARMS = 0.001
"""Share of comparisons of two equal loaders with any `distribution` difference, at most."""
LEAST_SAMPLES = 30
"""Samples from which distributions are compared."""
ROUNDING = 0.02
"""Maximum difference due to rounding and resize filters, as a share of the leaf's range."""
_NEIGHBOURS = 0.3
"""Correlation of two epochs' positions from which an epoch counts as shuffled among neighbours."""
_FIXED = "the same in each epoch"
_UNIQUE = 0.9
"""Share of different values from which a leaf identifies samples."""
_MOST_PAIRED = 4000
"""Samples of an epoch up to which thumbnails are compared with each other."""

Ints: TypeAlias = npt.NDArray[np.int64]
Verdict = Literal["equal", "equal up to rounding", "different"]


@dataclass(frozen=True)
class Difference:
    """One difference between the loaders."""

    code: str
    """Key of `CODES`."""
    leaf: str
    """Place in a batch; empty for a difference that concerns samples or the epoch."""
    before: str
    after: str
    p_value: float | None = None
    """Probability of such a difference between equal distributions; None for exact comparisons."""


@dataclass(frozen=True)
class Judgement:
    """Verdict, what differs, and what was compared how."""

    differences: list[Difference]
    compared: dict[str, str]
    """Comparison of each leaf: by `values`, `distribution` (`samples not paired`), or `too few samples`."""
    samples: tuple[int, int]
    """Samples in an epoch of each."""
    samples_per_s: tuple[float, float]
    """Samples per second in the second epoch of each, in the loader's `next()`. For information only."""

    @property
    def verdict(self) -> Verdict:
        codes = {one.code for one in self.differences}
        return "equal" if not codes else "equal up to rounding" if codes == {"rounding"} else "different"

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {"schema": SCHEMA, "verdict": self.verdict, **asdict(self)}


def judge(before: LoaderObservation, after: LoaderObservation) -> Judgement:
    """Compare two loaders. `before` is the reference."""
    one, other = before.epochs[0], after.epochs[0]
    shared = [name for name in one.leaves if name in other.leaves]
    pairing = _Pairing(before, after, shared)
    differences = [*_lengths(one, other), *_leaves(one, other)]
    differences += [*_samples(before, after, pairing.fixed), *_orders(pairing)]
    compared = {}
    both = [name for name in shared if name in pairing.drawn[0] and name in pairing.drawn[1]]
    tests = sum(3 * len(one.leaves[name].statistics) for name in both)
    for name in shared:
        if name in pairing.fixed:
            compared[name] = "values"
            differences += _values(name, before, after, pairing)
        elif name in both:
            is_enough = min(one.samples, other.samples) >= LEAST_SAMPLES
            how = "distribution" if len(pairing.rows) else "distribution (samples not paired)"
            compared[name] = how if is_enough else "too few samples"
            differences += _distributions(name, pairing, FALSE_ALARMS / max(tests, 1)) if is_enough else []
        else:
            compared[name] = "values"
            texts = ["drawn at random" if name in drawn else "the same in each epoch" for drawn in pairing.drawn]
            differences.append(_difference("augmentation", name, texts))
    speeds = [each.epochs[1].samples / max(each.epochs[1].seconds, 1e-9) for each in (before, after)]
    return Judgement(differences, compared, (one.samples, other.samples), (speeds[0], speeds[1]))


def _difference(code: str, leaf: str, texts: list[str]) -> Difference:
    before, after = texts
    return Difference(code, leaf, before, after)


def _lengths(one: EpochObservation, other: EpochObservation) -> Iterator[Difference]:
    if one.samples != other.samples:
        yield Difference("length", "", f"{one.samples} samples", f"{other.samples} samples")
    elif one.batch_sizes != other.batch_sizes:
        texts = [f"{len(each.batch_sizes)} batches of up to {max(each.batch_sizes)}" for each in (one, other)]
        yield _difference("length", "", texts)


def _leaves(one: EpochObservation, other: EpochObservation) -> Iterator[Difference]:
    for name in dict.fromkeys([*one.leaves, *other.leaves]):
        mine, theirs = one.leaves.get(name), other.leaves.get(name)
        if mine is None or theirs is None:
            yield _difference("leaves", name, ["none" if leaf is None else _kinds(leaf) for leaf in (mine, theirs)])
        elif mine.kinds.keys() != theirs.kinds.keys():
            yield Difference("dtype", name, _kinds(mine), _kinds(theirs))
        elif set(mine.shapes) != set(theirs.shapes) and min(len(mine.shapes), len(theirs.shapes)) == 1:
            yield Difference("shape", name, _shapes(mine), _shapes(theirs))


def _kinds(leaf: LeafObservation) -> str:
    return " or ".join(sorted(leaf.kinds))


def _shapes(leaf: LeafObservation) -> str:
    return f"{len(leaf.shapes)} shapes" if len(leaf.shapes) > 3 else " or ".join(map(str, sorted(leaf.shapes)))


def _missing(before: LoaderObservation, after: LoaderObservation, leaf: str) -> tuple[int, int]:
    """Return how many samples' values only the one loader gives, and only the other, beyond the epochs' own changes."""
    one, other = (Counter(each.epochs[0].leaves[leaf].digests) for each in (before, after))
    own = before.changed(leaf) + after.changed(leaf)
    return max(0, (one - other).total() - own), max(0, (other - one).total() - own)


def _samples(before: LoaderObservation, after: LoaderObservation, fixed: list[str]) -> Iterator[Difference]:
    """Yield a difference if one loader lacks samples of the other, by the leaf with the most different values."""
    leaf = max(fixed, key=lambda name: len(set(before.epochs[0].leaves[name].digests)), default=None)
    missing = (0, 0) if leaf is None else _missing(before, after, leaf)
    most = max(before.epochs[0].samples, after.epochs[0].samples)
    if leaf is not None and 0 < max(missing) <= most / 2:  # if most values differ, they do not identify samples
        yield _difference("samples", leaf, [f"{count} samples only here" for count in missing])


class _Pairing:
    """Rows of the same sample in the four epochs, two of each loader, and the leaves that each loader draws."""

    def __init__(self, before: LoaderObservation, after: LoaderObservation, shared: list[str]) -> None:
        self.epochs = (*before.epochs, *after.epochs)
        """Epochs in the order of the columns of `rows`."""
        none = np.empty((0, 4), np.int64)
        most = max(map(self._by_digests, shared), key=_paired_count, default=none)  # drawn values may recur by chance
        self.rows = most if _paired_count(most) >= min(LEAST_SAMPLES, max(1, self.epochs[0].samples // 2)) else none
        """int64[samples, 4]; -1 for a sample that an epoch lacks."""
        self.drawn = [
            {name for name in shared if self._is_drawn(name, 2 * number, each)}
            for number, each in enumerate((before, after))
        ]
        self.fixed = [name for name in shared if name not in self.drawn[0] | self.drawn[1]]
        for name in self.fixed:
            if not len(self.rows) and self.epochs[0].leaves[name].thumbnails:
                self.rows = self._by_thumbnails(name)

    @property
    def complete(self) -> Ints:
        """Rows of the samples in all four epochs."""
        return self.rows[(self.rows >= 0).all(axis=1)]

    def pairs(self) -> list[tuple[int, int, int, int]]:
        """Return a making by each loader of the samples in both: column and row of one, column and row of the other."""
        found = []
        for row in self.rows.tolist():
            one, other = (next((column for column in both if row[column] >= 0), None) for both in ((0, 1), (2, 3)))
            if one is not None and other is not None:
                found.append((one, row[one], other, row[other]))
        return found

    def values(self, leaf: str, statistic: str) -> Floats:
        """Return float64[samples, 4]: a statistic in each epoch, NaN for a sample that the epoch lacks."""
        columns = [epoch.leaves[leaf].statistics[statistic][self.rows[:, n]] for n, epoch in enumerate(self.epochs)]
        return np.where(self.rows >= 0, np.stack(columns, axis=1), np.nan)

    def _is_drawn(self, leaf: str, first: int, loader: LoaderObservation) -> bool:
        """Return True if values differ between two makings of a sample; without pairs, if an epoch has new values."""
        both = self.rows[(self.rows[:, first : first + 2] >= 0).all(axis=1), first : first + 2].tolist()
        if not both:
            return loader.changed(leaf) >= max(loader.epochs[0].batch_sizes)
        one, other = (epoch.leaves[leaf].digests for epoch in loader.epochs)
        return any(one[a] != other[b] for a, b in both)

    def _by_digests(self, leaf: str) -> Ints:
        """Pair samples by a leaf with a value of its own in nearly each of them."""
        digests = [epoch.leaves[leaf].digests for epoch in self.epochs]
        if any(len(set(each)) < _UNIQUE * len(each) for each in digests):
            return np.empty((0, 4), np.int64)
        places = [{digest: row for row, digest in enumerate(each)} for each in digests]
        known = dict.fromkeys(digest for each in digests for digest in each)
        return np.array([[each.get(digest, -1) for each in places] for digest in known], np.int64).reshape(-1, 4)

    def _by_thumbnails(self, leaf: str) -> Ints:
        """Pair samples whose thumbnails are each other's nearest, whatever scale and offset the values have."""
        first, *others = (_standardised(epoch.leaves[leaf].thumbnails) for epoch in self.epochs)
        if max(map(len, (first, *others))) > _MOST_PAIRED:
            return np.empty((0, 4), np.int64)
        columns = [np.arange(len(first))]
        is_mutual = np.ones(len(first), bool)
        for thumbnails in others:
            likeness = first @ thumbnails.T
            nearest = likeness.argmax(axis=1)
            is_mutual &= likeness.argmax(axis=0)[nearest] == columns[0]
            columns.append(nearest)
        return np.stack(columns, axis=1)[is_mutual]


def _paired_count(rows: Ints) -> int:
    """Return how many samples both loaders have."""
    return int(((rows[:, :2] >= 0).any(axis=1) & (rows[:, 2:] >= 0).any(axis=1)).sum())


def _standardised(thumbnails: list[Floats]) -> Floats:
    rows = np.stack(thumbnails)
    rows = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _orders(pairing: _Pairing) -> Iterator[Difference]:
    rows = pairing.complete
    if len(rows) < LEAST_SAMPLES:
        return
    before, after = (_order(rows[:, first], rows[:, first + 1]) for first in (0, 2))
    if before != after:
        yield Difference("order", "", before, after)
    elif before == _FIXED and not np.array_equal(np.argsort(rows[:, 0]), np.argsort(rows[:, 2])):
        yield Difference("order", "", before, "another one, the same in each epoch")


def _order(one: Ints, other: Ints) -> str:
    """Return the kind of order by the positions of the same samples in two epochs."""
    if np.array_equal(np.argsort(one), np.argsort(other)):
        return _FIXED
    return "shuffled among neighbours" if np.corrcoef(one, other)[0, 1] > _NEIGHBOURS else "shuffled"


def _values(name: str, before: LoaderObservation, after: LoaderObservation, pairing: _Pairing) -> Iterator[Difference]:
    """Yield the difference of a leaf that neither loader draws."""
    pairs = pairing.pairs()
    if not pairs:
        if any(_missing(before, after, name)):
            counts = [len(set(each.epochs[0].leaves[name].digests)) for each in (before, after)]
            yield _difference("values", name, [f"{count} different values" for count in counts])
        return
    leaves = [epoch.leaves[name] for epoch in pairing.epochs]
    unequal = [each for each in pairs if leaves[each[0]].digests[each[1]] != leaves[each[2]].digests[each[3]]]
    if not unequal:
        return
    worst, statistic, texts = 0.0, "", ["text", "another text"]
    tables = [leaf.statistics for leaf in leaves]
    for key in tables[0].keys() & tables[2].keys():
        differences = [abs(tables[c][key][a] - tables[d][key][b]) for c, a, d, b in unequal]
        scale = max(float(np.ptp(tables[0][key])), 1e-12) if key == "value" else _range(leaves[0])
        place = int(np.argmax(differences))
        c, a, d, b = unequal[place]
        if differences[place] / scale >= worst:
            worst, statistic = differences[place] / scale, f"{key} "
            texts = [f"{tables[c][key][a]:.6g}", f"{tables[d][key][b]:.6g}"]
    is_rounding = bool(statistic) and worst <= ROUNDING and leaves[0].kinds.keys() == leaves[2].kinds.keys()
    many = f"{len(unequal)} of {len(pairs)} samples; {statistic}"
    yield _difference("rounding" if is_rounding else "values", name, [many + texts[0], statistic + texts[1]])


def _range(leaf: LeafObservation) -> float:
    """Return the usual range of a leaf's values: four deviations within and between samples."""
    statistics = leaf.statistics
    within = [values.mean() for key, values in statistics.items() if key.startswith("deviation")]
    between = [values.std() for key, values in statistics.items() if key.startswith("mean")]
    return max(4 * float(np.hypot(max(within, default=0.0), max(between, default=0.0))), 1e-12)


def _distributions(name: str, pairing: _Pairing, most_p: float) -> Iterator[Difference]:
    """Yield the most certain difference of a leaf that both loaders draw."""
    tables = [epoch.leaves[name].statistics for epoch in pairing.epochs]
    found = []
    for key in tables[0]:
        if all(key in table for table in tables):
            values = pairing.values(name, key)
            tests = _paired(values) if len(values) else _unpaired(tables[0][key], tables[2][key])
            found += [(p_value, f"{key} ({what})", tables[0][key], tables[2][key]) for what, p_value in tests]
    p_value, what, one, other = min(found, key=lambda each: each[0], default=(1.0, "", np.zeros(1), np.zeros(1)))
    if p_value < most_p:
        texts = [f"{what}: {each.mean():.4g} ± {each.std():.4g}" for each in (one, other)]
        yield Difference("distribution", name, texts[0], texts[1], p_value)


def _paired(values: Floats) -> Iterator[tuple[str, float]]:
    """Yield tests of a statistic of the same samples, float64[samples, 4] with NaN for a sample that an epoch lacks.

    For equal loaders, the sum of both makings by the one less those by the other is symmetric about zero. So are the
    difference of single makings, and the difference between the loaders' squared differences, or products, of two
    makings.
    """
    one, other = (np.where(np.isnan(values[:, n]), values[:, n + 1], values[:, n]) for n in (0, 2))
    sums = values[:, 0] + values[:, 1] - values[:, 2] - values[:, 3]
    yield "location", _sign_symmetric(_finite(np.where(np.isnan(sums), one - other, sums)))
    centred = values - np.nanmean(values)
    squares = [(values[:, n] - values[:, n + 1]) ** 2 for n in (0, 2)]
    products = [centred[:, n] * centred[:, n + 1] for n in (0, 2)]  # about zero with flips
    for what, (before, after) in (("spread", squares), ("agreement", products)):
        both = _finite(before - after)
        is_enough = len(both) >= LEAST_SAMPLES
        yield what, _sign_symmetric(both) if is_enough else _rank_test(_finite(before), _finite(after))


def _unpaired(one: Floats, other: Floats) -> Iterator[tuple[str, float]]:
    """Yield rank tests of the values, and of their distances from the median."""
    yield "location", _rank_test(one, other)
    yield "spread", _rank_test(np.abs(one - np.median(one)), np.abs(other - np.median(other)))


def _finite(values: Floats) -> Floats:
    return values[np.isfinite(values)]


def _sign_symmetric(differences: Floats) -> float:
    """Return Hoeffding's bound on the probability of such a sum, which holds for differences of any sizes."""
    size = math.sqrt(float((differences**2).sum()))
    z = 0.0 if size == 0 else float(differences.sum()) / size
    return min(1.0, 2 * math.exp(-z * z / 2))


def _rank_test(one: Floats, other: Floats) -> float:
    """Return the p-value of the Wilcoxon-Mann-Whitney test by its normal approximation, corrected for ties."""
    if min(len(one), len(other)) < LEAST_SAMPLES:
        return 1.0
    _, place, counts = np.unique(np.concatenate([one, other]), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    m, n = len(one), len(other)
    ties = float(((counts**3) - counts).sum()) / ((m + n) * (m + n - 1))
    variance = m * n / 12 * (m + n + 1 - ties)
    if variance <= 0:
        return 1.0
    z = (float(ranks[:m].sum()) - m * (m + n + 1) / 2) / math.sqrt(variance)
    return math.erfc(abs(z) / math.sqrt(2))
