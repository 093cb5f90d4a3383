"""Judgement on two loaders, from what was observed of each. Pure.

Leaves that are the same in all epochs of a loader are compared value by value, and so are drawn leaves if both loaders
made the same draws. Other drawn leaves are compared by distribution, and count as equal only if a planted fault would
have been seen. Two equal loaders give a false alarm in at most one of a thousand comparisons.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from headrace.compare.distribution import FAULTS, drawn_tests, faults_of, least_z, samples_to_show
from headrace.compare.observation import EpochObservation, LeafObservation, LoaderObservation
from headrace.compare.pairing import LEAST_SAMPLES, Bools, Ints, Pairing
from headrace.compare.values import compare_values

CODES = {
    "leaves": "A batch of one loader has a leaf that the other's has not.",
    "dtype": "Dtype, or number of dimensions.",
    "shape": "Shapes of a leaf.",
    "length": "Samples or batches in an epoch, or sizes of batches.",
    "samples": "Samples that one loader gives more often in an epoch, or not at all.",
    "order": "Order of an epoch: fixed, shuffled among neighbours, or shuffled.",
    "augmentation": "Values that one loader draws at random, and the other does not.",
    "values": "Values of the same sample, fixed or by the same draws.",
    "distribution": "Distribution of values that both loaders draw at random.",
}
"""Meaning of each difference by code."""
SCHEMA = 2
_NEIGHBOURS = 0.3
"""Correlation of two epochs' positions from which an epoch counts as shuffled among neighbours."""
_RANGES = 0.25
"""Difference between the ends of two ranges of few samples that counts, as a share of the range."""
_FIXED = "the same in each epoch"
Compared = tuple[str, "list[Difference | Unseen]"]
Verdict = Literal["equal", "not enough seen", "different"]


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
class Unseen:
    """Leaf in which a fault could have hidden."""

    leaf: str
    faults: list[str]
    """Faults that the comparison would not have shown."""
    takes: str
    """Evidence that would show them."""
    samples: int | None = None
    """Samples that would show them at this spread; None if more samples are no remedy."""


@dataclass(frozen=True)
class Judgement:
    """Verdict, what differs, what could not be seen, and what was compared how."""

    differences: list[Difference]
    unseen: list[Unseen]
    compared: dict[str, str]
    """Comparison of each leaf: `values` or `values of the same draws`, both also `rounded`, or `distribution`."""
    samples: tuple[int, int]
    """Samples in an epoch of each."""
    samples_per_s: tuple[float, float]
    """Samples per second in the last epoch of each, in the loader's `next()`; 0 if not timed."""

    @property
    def verdict(self) -> Verdict:
        return self.verdict_but()

    def verdict_but(self, codes: Collection[str] = (), leaves: Collection[str] = ()) -> Verdict:
        """Return the verdict if differences of these codes, and what was not seen of these leaves, are allowed."""
        if any(one.code not in codes for one in self.differences):
            return "different"
        return "not enough seen" if any(one.leaf not in leaves for one in self.unseen) else "equal"

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {"schema": SCHEMA, "verdict": self.verdict, **asdict(self)}


def judge(before: LoaderObservation, after: LoaderObservation) -> Judgement:
    """Compare two loaders. `before` is the reference."""
    one, other = before.epochs[0], after.epochs[0]
    shared = [name for name in one.leaves if name in other.leaves]
    pairing = Pairing(before, after, shared)
    differences = [*_lengths(one, other), *_leaves(one, other)]
    differences += [*_samples(before, after, pairing.fixed), *_orders(pairing)]
    compared: dict[str, str] = {}
    unseen: list[Unseen] = []
    drawn = len(pairing.drawn[0] & pairing.drawn[1])
    for name in shared:
        if name in pairing.drawn[0] & pairing.drawn[1]:
            found = _drawn(name, pairing, drawn)
        elif name in pairing.fixed:
            paired = _values(name, pairing) if len(pairing.rows) else None
            found = paired or _all_values(name, before, after, len(shared))
        else:
            found = _drawn_by_one(name, pairing)
        compared[name] = found[0]
        differences += [each for each in found[1] if isinstance(each, Difference)]
        unseen += [each for each in found[1] if isinstance(each, Unseen)]
    speeds = [each.epochs[-1].samples_per_s for each in (before, after)]
    return Judgement(differences, unseen, compared, (one.samples, other.samples), (speeds[0], speeds[1]))


def _drawn_by_one(name: str, pairing: Pairing) -> Compared:
    if needed := pairing.to_show_draws(name):
        samples = len(pairing.complete) + needed
        return "values", [Unseen(name, ["draws of one loader alone"], f"{samples} samples", samples)]
    texts = ["drawn at random" if name in each else _FIXED for each in pairing.drawn]
    return "values", [Difference("augmentation", name, texts[0], texts[1])]


def _lengths(one: EpochObservation, other: EpochObservation) -> Iterator[Difference]:
    if one.samples != other.samples:
        yield Difference("length", "", f"{one.samples} samples", f"{other.samples} samples")
    elif one.batch_sizes != other.batch_sizes:
        texts = [f"{len(each.batch_sizes)} batches of up to {max(each.batch_sizes)}" for each in (one, other)]
        yield Difference("length", "", texts[0], texts[1])


def _leaves(one: EpochObservation, other: EpochObservation) -> Iterator[Difference]:
    for name in dict.fromkeys([*one.leaves, *other.leaves]):
        mine, theirs = one.leaves.get(name), other.leaves.get(name)
        kinds = ["none" if leaf is None else " or ".join(sorted(leaf.kinds)) for leaf in (mine, theirs)]
        if mine is None or theirs is None:
            yield Difference("leaves", name, kinds[0], kinds[1])
        elif mine.kinds.keys() != theirs.kinds.keys():
            yield Difference("dtype", name, kinds[0], kinds[1])
        elif set(mine.shapes) != set(theirs.shapes) and min(len(mine.shapes), len(theirs.shapes)) == 1:
            yield Difference("shape", name, _shapes(mine), _shapes(theirs))


def _shapes(leaf: LeafObservation) -> str:
    return f"{len(leaf.shapes)} shapes" if len(leaf.shapes) > 3 else " or ".join(map(str, sorted(leaf.shapes)))


def _missing(before: LoaderObservation, after: LoaderObservation, leaf: str) -> tuple[int, int]:
    """Return how many samples' values only the one loader gives, and only the other, beyond the epochs' own changes."""
    one, other = (Counter(each.epochs[0].leaves[leaf].digests) for each in (before, after))
    own = before.changed(leaf) + after.changed(leaf)
    return max(0, (one - other).total() - own), max(0, (other - one).total() - own)


def _samples(before: LoaderObservation, after: LoaderObservation, fixed: list[str]) -> Iterator[Difference]:
    """Yield a difference if one loader lacks samples of the other, by the leaf with the most different values.

    Of equals, a leaf that is no image: a few images may be rounded otherwise.
    """
    of = before.epochs[0].leaves
    leaf = max(fixed, key=lambda name: (len(set(of[name].digests)), not of[name].thumbnails), default=None)
    missing = (0, 0) if leaf is None else _missing(before, after, leaf)
    most = max(before.epochs[0].samples, after.epochs[0].samples)
    if leaf is not None and 0 < max(missing) <= most / 2:  # if most values differ, they do not identify samples
        texts = [f"{count} samples only here" for count in missing]
        yield Difference("samples", leaf, texts[0], texts[1])


def _orders(pairing: Pairing) -> Iterator[Difference]:
    rows = pairing.complete
    if len(rows) < 2:
        return
    before, after = (_order(rows[:, first], rows[:, first + 1]) for first in (0, pairing.makings))
    if before != after:
        yield Difference("order", "", before, after)
    elif before == _FIXED and not np.array_equal(np.argsort(rows[:, 0]), np.argsort(rows[:, pairing.makings])):
        yield Difference("order", "", before, "another one, the same in each epoch")


def _order(one: Ints, other: Ints) -> str:
    """Return the kind of order by the positions of the same samples in two epochs."""
    if np.array_equal(np.argsort(one), np.argsort(other)):
        return _FIXED
    is_near = len(one) >= LEAST_SAMPLES and np.corrcoef(one, other)[0, 1] > _NEIGHBOURS
    return "shuffled among neighbours" if is_near else "shuffled"


def _values(name: str, pairing: Pairing, alike: Bools | None = None) -> Compared | None:
    """Compare paired makings, of which those that are `alike` come of one draw; all, if neither loader draws.

    Returns None if only makings of other draws differ.
    """
    pairs = pairing.pairs(name)
    found = compare_values(name, pairing, pairs)
    off = found.is_off if alike is None else found.is_off & (alike | (alike.mean() > 0.98))
    how = "values" if alike is None else "values of the same draws"
    if off.any():
        before, after = found.worst
        return how, [Difference("values", name, f"{int(off.sum())} of {len(pairs)} pairs; {before}", after)]
    if found.bias:
        return how, [Difference("values", name, "0 levels", f"{found.bias:+.2f} levels on average")]
    if found.is_off.any():
        return None
    return (f"{how}, rounded" if found.rounded else how), []


def _all_values(name: str, before: LoaderObservation, after: LoaderObservation, leaves: int) -> Compared:
    """Compare the values of all samples, whichever sample has them: a leaf that neither loader draws, without pairs."""
    counts = [len(set(each.epochs[0].leaves[name].digests)) for each in (before, after)]
    if any(_missing(before, after, name)):
        texts = [f"{count} different values" for count in counts]
        return "values", [Difference("values", name, texts[0], texts[1])]
    is_seen = leaves == 1 or max(counts) == 1
    fault = ["the same values in other samples"]
    return "values", [] if is_seen else [Unseen(name, fault, "a leaf with a key of its own in each sample")]


def _drawn(name: str, pairing: Pairing, leaves: int) -> Compared:
    """Compare a leaf that both loaders draw: by values if they made the same draws, else by distribution."""
    alike = pairing.are_drawn_alike(name) if len(pairing.rows) else None
    found = None if alike is None else _values(name, pairing, alike)
    if found is not None:
        return found
    if pairing.epochs[0].samples < LEAST_SAMPLES:
        few = Unseen(name, list(FAULTS.values()), f"{LEAST_SAMPLES} samples or more", LEAST_SAMPLES)
        return "range", [*_ranges(name, pairing)] or [few]
    tests = drawn_tests(name, pairing)
    threshold = least_z(leaves * len(tests))
    largest = max(tests, key=lambda test: test.z)
    if largest.z >= threshold:
        before, after = (f"{largest.what}: {text}" for text in largest.texts)
        p_value = math.erfc(largest.z / math.sqrt(2))
        return "distribution", [Difference("distribution", name, before, after, p_value)]
    needed = {fault: samples_to_show(fault, tests, threshold) for fault in faults_of(name, pairing)}
    return "distribution", [*_unseen(name, pairing, {fault: each for fault, each in needed.items() if each != 0})]


def _ranges(name: str, pairing: Pairing) -> Iterator[Difference]:
    """Yield a difference if the ends of an image's values are apart by more than few samples explain."""
    ends = []
    for part in (pairing.epochs[: pairing.makings], pairing.epochs[pairing.makings :]):
        tables = [epoch.leaves[name].statistics for epoch in part if epoch.leaves[name].thumbnails]
        known = [table[key] for table in tables for key in table if key.startswith(("lowest", "highest"))]
        if not known:  # no image, or one without pixels
            return
        ends.append((min(map(np.min, known)), max(map(np.max, known))))
    (low, high), (other_low, other_high) = ends
    if max(abs(low - other_low), abs(high - other_high)) > _RANGES * max(high - low, other_high - other_low):
        texts = [f"{one:.4g} to {other:.4g}" for one, other in ends]
        yield Difference("distribution", name, texts[0], texts[1])


def _unseen(name: str, pairing: Pairing, needed: dict[str, int | None]) -> Iterator[Unseen]:
    """Yield what the samples did not show of a leaf, by the samples that would."""
    faults = [FAULTS[fault] for fault in needed]
    if not len(pairing.complete):
        yield Unseen(name, faults, "a leaf with a key of its own in each sample, and whole epochs, or the same seed")
    elif None in needed.values():
        yield Unseen(name, faults, "the same seed, so that values can be compared")
    elif needed:
        samples = max(count for count in needed.values() if count is not None)
        epochs = math.ceil(samples / len(pairing.complete) * pairing.makings)
        yield Unseen(name, faults, f"{samples} samples, {epochs} epochs, or the same seed", samples)
