"""`RepeatFactor`, and the sampling arguments of a Loader, resolved to draws."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset, ListColumn, ValueColumn
from headrace.errors import UsageError
from headrace.foreign_arguments import KnownArguments
from headrace.plan.draws import MOST_DRAWS, Draws, FactorDraws, Floats, RepeatedDraws, WeightedDraws, scaled_ends
from headrace.plan.order import Order, check_int
from headrace.plan.step_views import Ints

MOST_REPEATS = 1 << 16


@dataclass(frozen=True)
class RepeatFactor(KnownArguments):
    """Images of rare categories repeated within an epoch, as for LVIS (Gupta et al., CVPR 2019, section 5.1).

    A category in a share f of the images has the factor max(1, sqrt(threshold / f)). An image has the largest factor of
    its categories, and 1 without any. An epoch has ceil(sum of factors) draws. It holds each image its factor times on
    average, rounded down or up anew in each epoch, so at least once.

    `threshold`  the share below which a category is repeated; 0.001 for LVIS
    `source`     the column of categories: a list for each image, or one class
    """

    threshold: float
    _: KW_ONLY
    source: str = "label"

    def __post_init__(self) -> None:
        if (
            isinstance(self.threshold, bool)
            or not isinstance(self.threshold, int | float)
            or not 0 < self.threshold <= 1
        ):
            raise UsageError(
                f"RepeatFactor: expected threshold to be a share of the images above 0, at most 1, got "
                f"{self.threshold!r}; LVIS takes 0.001"
            )
        if not isinstance(self.source, str):
            raise UsageError(f"RepeatFactor: expected source to be the name of a column, got {self.source!r}")

    def factors(self, images: Ints, categories: NDArray[Any], *, count: int) -> Floats:
        """Return the factor of each of `count` images; `categories[i]`, of any type, is one of image `images[i]`."""
        names, numbers = np.unique(categories, return_inverse=True)
        pairs = np.sort(images * max(1, len(names)) + numbers)  # np.unique takes ten times as long
        images, numbers = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(1, len(names)))
        shares = np.bincount(numbers, minlength=len(names)) / count
        of_category = np.maximum(1.0, np.sqrt(self.threshold / shares))
        factors = np.ones(count)
        np.maximum.at(factors, images, of_category[numbers])
        return factors


@dataclass(frozen=True, eq=False, kw_only=True)
class Sampling:
    """Sampling arguments of a Loader."""

    weights: str | Sequence[float] | NDArray[Any] | None = None
    balanced: str | RepeatFactor | None = None
    repeats: int = 1
    samples_per_epoch: int | None = None

    @property
    def given(self) -> list[str]:
        """Names of the given arguments."""
        values = {name: value for name, value in vars(self).items() if value is not None}
        return [name for name, value in values.items() if name != "repeats" or value != 1]

    @property
    def replaces(self) -> str | None:
        """Name of the argument that draws samples with replacement; None if there is none."""
        if self.weights is not None:
            return "weights="
        return None if self.balanced is None or isinstance(self.balanced, RepeatFactor) else "balanced="

    def check(self, order: Order, dataset: Dataset, besides: str | None) -> None:
        """Raise UsageError for arguments that do not go together, before anything is read.

        `besides` names another argument that groups samples into batches. Only repeat factors go with such an argument.
        """
        if not self.given:
            return
        ways = [name for name in self.given if name != "samples_per_epoch"]
        name = self.given[0]
        if len(ways) > 1:
            raise UsageError(f"{ways[0]}: expected no {ways[1]}= alongside, got both; leave one out")
        if besides is not None and (
            besides == "pack=" or self.given != ["balanced"] or not isinstance(self.balanced, RepeatFactor)
        ):
            raise UsageError(
                f"{name}: expected batches that are cut from the draws as they come, got {besides}, which groups every "
                "sample once; leave one out (hr.RepeatFactor, with an epoch of its own length, goes with all but pack=)"
            )
        if not order.shuffle:
            raise UsageError(f"{name}: expected shuffle=True with it, as its samples are drawn, got shuffle=False")
        check_int("repeats", self.repeats, 1, MOST_REPEATS, "it is how often each sample comes")
        if self.samples_per_epoch is not None:
            check_int("samples_per_epoch", self.samples_per_epoch, 1, MOST_DRAWS, "it counts the draws of all ranks")
        check_int("length", len(dataset), 1, 1 << 62, "the dataset holds no sample")

    def draws(self, dataset: Dataset) -> Draws | None:
        """Return the draws of these arguments, once `check` has passed; None for no draws. Reads labels in members.

        Raises UsageError for invalid weights, labels or categories.
        """
        size = len(dataset)
        if not self.given:
            return None
        if self.weights is not None:
            weights = _checked_weights(_weights(dataset, self.weights), size)
            return self._weighted(weights, "weights")
        factors = self.factors(dataset)
        if factors is not None:
            return self._by_factors(factors)
        if self.balanced is not None:
            classes = _classes(dataset, self.balanced)
            return self._weighted(1 / np.bincount(classes)[classes], f"balanced {self.balanced}")
        count = self._count(size)
        return RepeatedDraws(
            count=count, samples=size, words=f"{count} draws, repeats {self.repeats}", repeats=self.repeats
        )

    def factors(self, dataset: Dataset) -> Floats | None:
        """Return each sample's repeat factor; None without repeat factors. Reads labels in members."""
        if not isinstance(self.balanced, RepeatFactor):
            return None
        return self.balanced.factors(*_categories(dataset, self.balanced), count=len(dataset))

    def _weighted(self, weights: Floats, words: str) -> WeightedDraws:
        ends, count = np.cumsum(weights), self._count(len(weights))
        return WeightedDraws(
            count=count, samples=len(ends), words=f"{count} draws, {words} ({digest_of(ends)})", ends=ends
        )

    def _by_factors(self, factors: Floats) -> FactorDraws:
        ends = scaled_ends(factors, self.samples_per_epoch)
        count = self._count(int(ends[-1]))
        words = f"{count} draws, repeat factors ({digest_of(ends)})"
        return FactorDraws(count=count, samples=len(ends), words=words, ends=ends)

    def _count(self, default: int) -> int:
        count = default if self.samples_per_epoch is None else self.samples_per_epoch
        check_int("samples_per_epoch", count, 1, MOST_DRAWS, "pass the draws of an epoch, or open fewer samples")
        return count


def digest_of(numbers: Floats) -> str:
    """Return a short hex digest of the numbers, the same on every machine."""
    return hashlib.blake2b(np.ascontiguousarray(numbers, "<f8").data, digest_size=8).hexdigest()


def _weights(dataset: Dataset, weights: object) -> NDArray[Any]:
    """Return the values of the column that `weights` names, or of `weights` themselves."""
    if not isinstance(weights, str):
        return np.asarray(weights)
    column = dataset.columns.get(weights)
    if not isinstance(column, ValueColumn):
        numbers = [name for name, each in dataset.columns.items() if isinstance(each, ValueColumn)]
        got = f"a column of {column.kind}" if column is not None else "no such column"
        raise UsageError(
            f"weights: expected the name of a column of numbers ({', '.join(numbers) or 'there is none'}), got "
            f"{weights!r}: {got}; or pass an array of {len(dataset):,} numbers"
        )
    return dataset.labels(weights)


def _checked_weights(weights: NDArray[Any], size: int) -> Floats:
    """Return the weights as float64. Raises UsageError that names the first invalid weight."""
    if weights.ndim != 1 or weights.dtype.kind not in "biuf":
        raise UsageError(
            f"weights: expected {size:,} numbers, one a sample, got an array of {weights.dtype} of shape "
            f"{list(weights.shape)}; or name a column of numbers"
        )
    if len(weights) != size:
        raise UsageError(f"weights: expected {size:,} numbers, one a sample of the dataset, got {len(weights):,}")
    floats = weights.astype(np.float64)
    odd = np.flatnonzero(~(np.isfinite(floats) & (floats >= 0)))
    if len(odd):
        raise UsageError(
            f"weights: expected finite numbers of at least 0, got {weights[odd[0]]} at sample {odd[0]:,}; a weight of "
            "0 leaves a sample out"
        )
    with np.errstate(over="ignore"):
        total = float(np.cumsum(floats)[-1])
    if not 0 < total < np.inf:
        raise UsageError(f"weights: expected a sum above 0 that float64 can hold, got {total}")
    return floats


def _classes(dataset: Dataset, column: object) -> Ints:
    """Return each sample's class. Raises UsageError for a column without classes, or samples without a class."""
    if not isinstance(column, str):
        raise UsageError(
            f"balanced: expected the name of a column of classes, such as 'label', or hr.RepeatFactor(…), got "
            f"{column!r}"
        )
    found = dataset.columns.get(column)
    if isinstance(found, ListColumn):
        raise UsageError(
            f"balanced: expected a column of one class a sample, got {column!r}, a column of lists; "
            f"hr.RepeatFactor(0.001, source={column!r}) takes these"
        )
    if found is None:
        raise UsageError(
            f"balanced: expected the name of a column of classes, got {column!r}; the dataset has "
            f"{', '.join(dataset.columns)}"
        )
    labels = dataset.labels(column)
    if labels.dtype.kind not in "biu":
        raise UsageError(f"balanced: expected whole numbers in column {column!r}, got {labels.dtype}; use weights=")
    odd = np.flatnonzero(labels < 0)
    if len(odd):
        raise UsageError(
            f"balanced: expected a class from 0 up for every sample, got {labels[odd[0]]} for {dataset.key(odd[0])!r}; "
            f"leave such samples out with data.filter(lambda label: label >= 0, {column!r})"
        )
    _, numbers = np.unique(labels, return_inverse=True)
    return numbers.astype(np.int64)


def _categories(dataset: Dataset, factor: RepeatFactor) -> tuple[Ints, NDArray[Any]]:
    """Return pairs of an image's position and one of its categories."""
    column = dataset.columns.get(factor.source)
    if isinstance(column, ListColumn):
        ids = np.arange(len(dataset)) if dataset.base_ids is None else dataset.base_ids
        items, counts = column.take_joined(ids)
        return np.repeat(np.arange(len(dataset)), counts), np.asarray(items)
    if column is None:
        raise UsageError(
            f"RepeatFactor: expected source to be a column of categories, got {factor.source!r}; the dataset has "
            f"{', '.join(dataset.columns)}"
        )
    return np.arange(len(dataset)), dataset.labels(factor.source)
