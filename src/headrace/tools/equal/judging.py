"""Judgement on two loaders, from what was observed of each. Pure.

Leaves that are the same in both epochs of a loader are compared value by value. Leaves that a loader draws at random
are compared by distribution: the location of each statistic, and its spread between two makings of the same sample.
Both are tests against equal distributions, with one false alarm in a thousand comparisons of two equal loaders.
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
    differences = [*_lengths(one, other), *_leaves(one, other)]
    shared = [name for name in one.leaves if name in other.leaves]
    fixed = [name for name in shared if not before.is_drawn(name) and not after.is_drawn(name)]
    same = [name for name in fixed if not any(_missing(before, after, name))]
    pairing = _Pairing(before, after, same, fixed)
    differences += [*_samples(before, after, fixed), *_orders(pairing)]
    compared = {}
    drawn = [name for name in shared if before.is_drawn(name) and after.is_drawn(name)]
    tests = sum(2 * len(one.leaves[name].statistics) for name in drawn)
    for name in shared:
        if name in fixed:
            compared[name] = "values"
            is_settled = name in same and not len(pairing.rows)
            differences += [] if is_settled else _values(name, one, other, pairing)
        elif name in drawn:
            is_enough = min(one.samples, other.samples) >= LEAST_SAMPLES
            is_paired = len(pairing.rows) >= LEAST_SAMPLES
            how = "distribution" if is_paired else "distribution (samples not paired)"
            compared[name] = how if is_enough else "too few samples"
            differences += _distributions(name, before, after, pairing, FALSE_ALARMS / tests) if is_enough else []
        else:
            compared[name] = "values"
            texts = ["drawn at random" if each.is_drawn(name) else "the same in each epoch" for each in (before, after)]
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
    """Rows of the same sample in the four epochs: two of each loader."""

    def __init__(self, before: LoaderObservation, after: LoaderObservation, same: list[str], fixed: list[str]) -> None:
        self._epochs = (*before.epochs, *after.epochs)
        """Epochs in the order of the columns of `rows`."""
        alone = [name for name in same if len(set(self._epochs[0].leaves[name].digests)) == self._epochs[0].samples]
        self.rows = self._by_digests(alone[:1] or same)
        if not len(self.rows):
            images = [name for name in fixed if self._epochs[0].leaves[name].thumbnails]
            self.rows = self._by_thumbnails(images[0]) if images else self.rows

    def _by_digests(self, leaves: list[str]) -> Ints:
        """Return int64[samples, 4]: the samples that the values of these leaves identify."""
        if not leaves:
            return np.empty((0, 4), np.int64)
        found: list[dict[tuple[bytes, ...], int]] = []
        for epoch in self._epochs:
            keys = list(zip(*(epoch.leaves[name].digests for name in leaves), strict=True))
            counts = Counter(keys)
            found.append({key: row for row, key in enumerate(keys) if counts[key] == 1})
        shared = [key for key in found[0] if all(key in rows for rows in found[1:])]
        if len(shared) * 2 < len(self._epochs[0].leaves[leaves[0]].digests):
            return np.empty((0, 4), np.int64)
        return np.array([[rows[key] for rows in found] for key in shared], np.int64).reshape(-1, 4)

    def _by_thumbnails(self, leaf: str) -> Ints:
        """Return the samples whose thumbnails are each other's nearest, whatever scale and offset the values have."""
        first, *others = (_standardised(epoch.leaves[leaf].thumbnails) for epoch in self._epochs)
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

    def correlations(self) -> list[float]:
        """Return, for each loader, the correlation between the positions of samples in its two epochs."""
        found = []
        for first, second in ((0, 1), (2, 3)):
            one, other = self.rows[:, first].astype(float), self.rows[:, second].astype(float)
            found.append(float(np.corrcoef(one, other)[0, 1]))
        return found


def _standardised(thumbnails: list[Floats]) -> Floats:
    rows = np.stack(thumbnails)
    rows = rows - rows.mean(axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12))


def _orders(pairing: _Pairing) -> Iterator[Difference]:
    rows = pairing.rows
    if len(rows) < LEAST_SAMPLES:
        return
    before, after = (
        "the same in each epoch"
        if np.array_equal(np.argsort(rows[:, first]), np.argsort(rows[:, first + 1]))
        else "shuffled among neighbours"
        if correlation > _NEIGHBOURS
        else "shuffled"
        for first, correlation in zip((0, 2), pairing.correlations(), strict=True)
    )
    if before != after:
        yield Difference("order", "", before, after)
    elif before == "the same in each epoch" and not np.array_equal(np.argsort(rows[:, 0]), np.argsort(rows[:, 2])):
        yield Difference("order", "", before, "another one, the same in each epoch")


def _values(name: str, one: EpochObservation, other: EpochObservation, pairing: _Pairing) -> Iterator[Difference]:
    """Yield the difference of a leaf whose values are not drawn and not the same."""
    mine, theirs = one.leaves[name], other.leaves[name]
    if not len(pairing.rows):
        counts = [len(set(leaf.digests)) for leaf in (mine, theirs)]
        yield _difference("values", name, [f"{count} different values" for count in counts])
        return
    rows, others = pairing.rows[:, 0].tolist(), pairing.rows[:, 2].tolist()
    unequal = [(a, b) for a, b in zip(rows, others, strict=True) if mine.digests[a] != theirs.digests[b]]
    if not unequal:
        return  # only samples without a pair differ, which `samples` reports
    worst, statistic, texts = 0.0, "text", ("", "")
    both = {key: (mine.statistics[key], theirs.statistics[key]) for key in mine.statistics if key in theirs.statistics}
    for key, (ours, its) in both.items():
        scale = max(float(np.ptp(ours)), float(ours.std()), 1e-12) if key == "value" else _range(mine)
        a, b = max(unequal, key=lambda pair: abs(ours[pair[0]] - its[pair[1]]))
        share = abs(ours[a] - its[b]) / scale
        if share >= worst:
            worst, statistic, texts = share, key, (f"{ours[a]:.6g}", f"{its[b]:.6g}")
    is_rounding = bool(both) and worst <= ROUNDING and not mine.kinds.keys() - theirs.kinds.keys()
    many = f"{len(unequal)} of {len(rows)} samples"
    before, after = (f"{statistic} {text}".strip() for text in texts)
    yield Difference("rounding" if is_rounding else "values", name, f"{many}; {before}", after)


def _range(leaf: LeafObservation) -> float:
    """Return the usual range of a leaf's values: four deviations within and between samples."""
    statistics = leaf.statistics
    within = [values.mean() for key, values in statistics.items() if key.startswith("deviation")]
    between = [values.std() for key, values in statistics.items() if key.startswith("mean")]
    return max(4 * float(np.hypot(max(within, default=0.0), max(between, default=0.0))), 1e-12)


def _distributions(
    name: str, before: LoaderObservation, after: LoaderObservation, pairing: _Pairing, most_p: float
) -> Iterator[Difference]:
    """Yield the most certain difference of a leaf that both loaders draw."""
    tables = [epoch.leaves[name].statistics for epoch in (*before.epochs, *after.epochs)]
    found = []
    for key in tables[0]:
        if not all(key in table for table in tables):
            continue
        values = [table[key] for table in tables]
        is_paired = len(pairing.rows) >= LEAST_SAMPLES
        for what, p_value in _paired(values, pairing.rows) if is_paired else _unpaired(values):
            found.append((p_value, what, key, values))
    p_value, what, key, values = min(found, key=lambda each: each[0], default=(1.0, "", "", []))
    if p_value < most_p:
        texts = (f"{key}: {each.mean():.4g} ± {each.std():.4g}" for each in (values[0], values[2]))
        one, other = texts
        yield Difference("distribution", name, f"{one} ({what})", other, p_value)


def _paired(values: list[Floats], rows: Ints) -> Iterator[tuple[str, float]]:
    """Yield tests whose statistics are symmetric about zero for equal loaders.

    Each sample was made twice by either loader. The sum of the first loader's makings minus that of the second has a
    distribution symmetric about zero; so has the difference of their squared differences.
    """
    a, b, c, d = (each[rows[:, column]] for column, each in enumerate(values))
    yield "location", _sign_symmetric(a + b - c - d)
    yield "spread", _sign_symmetric((a - b) ** 2 - (c - d) ** 2)


def _unpaired(values: list[Floats]) -> Iterator[tuple[str, float]]:
    """Yield Welch tests of the first epochs: of the values, and of their distances from the median (Brown-Forsythe)."""
    one, other = values[0], values[2]
    yield "location", _welch(one, other)
    yield "spread", _welch(np.abs(one - np.median(one)), np.abs(other - np.median(other)))


def _sign_symmetric(differences: Floats) -> float:
    size = math.sqrt(float((differences**2).sum()))
    z = 0.0 if size == 0 else float(differences.sum()) / size
    return min(1.0, 2 * math.exp(-z * z / 2))  # Hoeffding's bound, which holds for any sizes of the differences


def _welch(one: Floats, other: Floats) -> float:
    error = math.sqrt(float(one.var()) / len(one) + float(other.var()) / len(other))
    apart = abs(float(one.mean() - other.mean()))
    if error == 0:
        return 1.0 if apart == 0 else 0.0
    return math.erfc(apart / error / math.sqrt(2))
