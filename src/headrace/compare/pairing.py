"""Pairing of the same sample's makings in all epochs of two loaders: by a key, by thumbnails, or by place. Pure."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from headrace.compare.observation import LoaderObservation

Bools: TypeAlias = npt.NDArray[np.bool_]
Ints: TypeAlias = npt.NDArray[np.int64]
Singles: TypeAlias = npt.NDArray[np.float32]
FALSE_ALARMS = 0.001
"""Share of comparisons of two equal loaders with a difference of one kind, at most."""
LEAST_SAMPLES = 30
"""Samples from which distributions are compared."""
_UNIQUE = 0.9
"""Share of different values from which a leaf identifies samples."""
_MOST_PAIRED = 4000
"""Samples of an epoch up to which thumbnails are compared with each other."""
_ALIKE = 0.97
"""Correlation of two thumbnails, one of them possibly mirrored, from which two makings come of one draw."""


class Pairing:
    """Rows of the same sample in the epochs of both loaders, and the leaves that each loader draws."""

    def __init__(self, before: LoaderObservation, after: LoaderObservation, shared: list[str]) -> None:
        self.makings = min(len(before.epochs), len(after.epochs))
        """Epochs of each loader."""
        self.epochs = (*before.epochs[: self.makings], *after.epochs[: self.makings])
        """Epochs in the order of the columns of `rows`: the first loader's, then the second's."""
        none = np.empty((0, len(self.epochs)), np.int64)
        most = max(map(self._by_digests, shared), key=self._paired_counts, default=none)
        is_enough = self._paired_counts(most)[1] >= min(LEAST_SAMPLES, max(1, self.epochs[0].samples // 2))
        self.rows = most if is_enough else none
        """int64[samples, epochs]; -1 for a sample that an epoch lacks."""
        self._changed: dict[tuple[int, str], tuple[int, int]] = {}
        self.drawn = [
            {name for name in shared if self._is_drawn(name, n, each)} for n, each in enumerate((before, after))
        ]
        """Leaves that differ between two makings of a sample, by loader."""
        self.fixed = [name for name in shared if name not in self.drawn[0] | self.drawn[1]]
        for name in self.fixed:
            if not len(self.rows) and self.epochs[0].leaves[name].thumbnails:
                self.rows = self._by_thumbnails(name)
        if not len(self.rows):
            self.rows = self._by_place([name for name in shared if name not in self.fixed])

    @property
    def complete(self) -> Ints:
        """Rows of the samples in all epochs."""
        return np.asarray(self.rows[(self.rows >= 0).all(axis=1)])

    def pairs(self, leaf: str) -> Ints:
        """Return int64[pairs, 4]: column and row of a making by one loader, and of one by the other.

        One pair per sample of a fixed leaf, one per sample and epoch of a drawn leaf.
        """
        pairs = [self._between(epoch, self.makings + epoch) for epoch in range(self.makings)]
        if leaf in self.fixed and len(self.rows):
            one, other = (part.max(axis=1) >= 0 for part in np.split(self.rows, 2, axis=1))
            columns = [(part >= 0).argmax(axis=1) for part in np.split(self.rows, 2, axis=1)]
            columns[1] += self.makings
            places = np.arange(len(self.rows))
            found = [columns[0], self.rows[places, columns[0]], columns[1], self.rows[places, columns[1]]]
            return np.asarray(np.stack(found, axis=1)[one & other])
        return np.concatenate(pairs)

    def are_drawn_alike(self, leaf: str) -> Bools | None:
        """Return which of `pairs` come of one draw, if half of them do and other makings do not; else None."""
        pairs = self.pairs(leaf)
        apart = [self._between(n, n + 1) for n in (0, self.makings)]
        others = np.concatenate(apart)
        if not len(others):
            others = pairs.copy()
            others[:, 3] = np.roll(pairs[:, 3], 1)
        found, chance = (self._alike(leaf, each) for each in (pairs, others))
        return found if len(found) and found.mean() - chance.mean() >= 0.5 else None

    def _between(self, one: int, other: int) -> Ints:
        rows = self.rows[(self.rows[:, one] >= 0) & (self.rows[:, other] >= 0)]
        columns = np.full(len(rows), one), rows[:, one], np.full(len(rows), other), rows[:, other]
        return np.stack(columns, axis=1)

    def _alike(self, leaf: str, pairs: Ints) -> Bools:
        leaves = [epoch.leaves[leaf] for epoch in self.epochs]
        equal = [leaves[a].digests[b] == leaves[c].digests[d] for a, b, c, d in pairs.tolist()]
        found = np.array(equal, bool)
        if all(len(one.thumbnails) == len(one.digests) for one in leaves):
            for start in range(0, len(pairs), 500):
                part = pairs[start : start + 500].tolist()
                one, other = (_standardised([leaves[at[n]].thumbnails[at[n + 1]] for at in part]) for n in (0, 2))
                likeness = [(one * turned).sum(axis=(1, 2)) for turned in mirrored(other)]
                found[start : start + 500] |= np.max(likeness, axis=0) > _ALIKE
        return found

    def _paired_counts(self, rows: Ints) -> tuple[int, int]:
        """Return how many samples all epochs have, and how many both loaders have."""
        one, other = np.split(rows >= 0, 2, axis=1)
        return int((one & other).all(axis=1).sum()), int((one.any(axis=1) & other.any(axis=1)).sum())

    def _is_drawn(self, leaf: str, number: int, loader: LoaderObservation) -> bool:
        """Return True if values differ between makings of a sample; without pairs, if an epoch has new values.

        Values of less than a batch may change without: a last batch that is dropped has other samples in each epoch.
        """
        columns = range(number * self.makings, (number + 1) * self.makings)
        pairs = [pair for each in pairwise(columns) for pair in self._between(*each).tolist()]
        if not pairs:
            return loader.changed(leaf) >= max(loader.epochs[0].batch_sizes)
        digests = [epoch.leaves[leaf].digests for epoch in self.epochs]
        changed = sum(int(digests[a][b] != digests[c][d]) for a, b, c, d in pairs)
        self._changed[number, leaf] = changed, len(pairs)
        return changed > 0

    def to_show_draws(self, leaf: str) -> int:
        """Return how many more samples it takes to show that only one loader draws a leaf; 0 if it is shown.

        The other might draw as rarely as the one, and not within the samples seen.
        """
        found = [self._changed.get((number, leaf)) for number in (0, 1)]
        if found[0] is None or found[1] is None:
            return 0
        (changed, of), (_, seen) = max(found[0], found[1]), min(found[0], found[1])
        needed = math.log(FALSE_ALARMS) / math.log1p(-changed / (of + 1))
        return max(0, math.ceil((needed - seen) / (self.makings - 1)))

    def _by_digests(self, leaf: str) -> Ints:
        """Pair samples by a leaf with a value of its own in nearly each of them.

        Drawn values are no key: by the same draws, they would pair just those samples in which no fault shows.
        """
        digests = [epoch.leaves[leaf].digests for epoch in self.epochs]
        none = np.empty((0, len(digests)), np.int64)
        if any(len(set(each)) < _UNIQUE * len(each) for each in digests):
            return none
        places = [{digest: row for row, digest in enumerate(each)} for each in digests]
        known = dict.fromkeys(digest for each in digests for digest in each)
        table = [[each.get(digest, -1) for each in places] for digest in known]
        rows = np.array(table, np.int64).reshape(-1, len(digests))
        is_large = any(sketch.size > 1 for sketch in self.epochs[0].leaves[leaf].sketches[:1])
        return none if is_large and 2 * self._paired_counts(rows)[0] < min(map(len, digests)) else rows

    def _by_thumbnails(self, leaf: str) -> Ints:
        """Pair samples whose thumbnails are each other's nearest, whatever scale and offset the values have."""
        leaves = [epoch.leaves[leaf] for epoch in self.epochs]
        if max(len(one.thumbnails) for one in leaves) > _MOST_PAIRED:
            return np.empty((0, len(leaves)), np.int64)
        first, *others = (_standardised(one.thumbnails).reshape(-1, 144) for one in leaves)
        columns = [np.arange(len(first))]
        is_mutual = np.ones(len(first), bool)
        for thumbnails in others:
            likeness = first @ thumbnails.T
            nearest = likeness.argmax(axis=1)
            is_mutual &= likeness.argmax(axis=0)[nearest] == columns[0]
            columns.append(nearest)
        return np.stack(columns, axis=1)[is_mutual]

    def _by_place(self, drawn: list[str]) -> Ints:
        """Pair the samples at the same place of both loaders' epochs, if most of a leaf come of one draw."""
        counts = [epoch.samples for epoch in self.epochs]
        pairs = list(zip(counts[: self.makings], counts[self.makings :], strict=True))
        rows = np.full((sum(map(min, pairs)), len(counts)), -1, np.int64)
        start = 0
        for epoch, count in enumerate(map(min, pairs)):
            rows[start : start + count, [epoch, self.makings + epoch]] = np.arange(count)[:, None]
            start += count
        self.rows = rows
        return rows if any(self.are_drawn_alike(name) is not None for name in drawn) else rows[:0]


def mirrored(images: Singles) -> list[Singles]:
    """Return images as they are, mirrored left to right, upside down, and both."""
    return [images, images[:, :, ::-1], images[:, ::-1], images[:, ::-1, ::-1]]


def _standardised(thumbnails: list[Singles]) -> Singles:
    """Return float32[images, 12, 12] of mean zero and norm one."""
    found = np.stack(thumbnails).reshape(-1, 12, 4, 12, 4).mean(axis=(2, 4))
    found -= found.mean(axis=(1, 2), keepdims=True)
    return np.asarray(found / np.maximum(np.linalg.norm(found, axis=(1, 2), keepdims=True), 1e-9))
