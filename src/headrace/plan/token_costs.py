"""Tokens of samples' images, by a function of their sizes, for buckets, budgets and packed rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headrace.data import Dataset, image_sizes
from headrace.errors import UsageError
from headrace.plan.batching import MOST_TOKENS, TokensPerImage
from headrace.plan.step_views import Ints


@dataclass(frozen=True, eq=False)
class CountedImages:
    """Images whose tokens count: a field's column, or the lists of a field of several images a sample."""

    dataset: Dataset
    """Images, one a sample of this dataset."""
    column: str
    exif: bool
    offsets: NDArray[np.int64] | None = None
    """Images of the sample with base id i: `offsets[i]` to `offsets[i + 1]`; None if each sample has one."""
    count: int | None = None
    """Number of images that a batch takes of each sample, of the largest size in its list; None: all."""

    def tokens(self, dataset: Dataset, tokens_per_image: TokensPerImage) -> Ints:
        """Return the tokens of each sample's images [len(dataset)]. Raises UsageError for a function's other results.

        An image without a readable size counts 0.
        """
        if callable(tokens_per_image):
            each = self._of_sizes(tokens_per_image)
        else:
            each = np.full(len(self.dataset), tokens_per_image, np.int64)
        if self.offsets is None:
            return each
        some = np.flatnonzero(np.diff(self.offsets))  # reduceat takes no empty ranges
        of_samples = np.zeros(len(self.offsets) - 1, np.int64)
        if self.count is None:
            of_samples[some] = np.add.reduceat(each, self.offsets[some])
        else:
            of_samples[some] = np.maximum.reduceat(each, self.offsets[some]) * self.count
        return of_samples if dataset.base_ids is None else of_samples[dataset.base_ids]

    def _of_sizes(self, tokens_of: Callable[[int, int], int]) -> Ints:
        sizes, which = np.unique(image_sizes(self.dataset, self.column, exif=self.exif), axis=0, return_inverse=True)
        found = [0 if not height or not width else tokens_of(height, width) for height, width in sizes.tolist()]
        for (height, width), tokens in zip(sizes.tolist(), found, strict=True):
            is_whole = isinstance(tokens, int | np.integer) and not isinstance(tokens, bool)
            if not is_whole or not 0 <= tokens <= MOST_TOKENS:
                raise UsageError(
                    f"tokens_per_image: expected an int from 0 to {MOST_TOKENS:,} for an image of {height} x "
                    f"{width} (height x width), got {tokens!r}"
                )
        return np.array(found, np.int64)[which.reshape(-1)]


def image_tokens(dataset: Dataset, images: Sequence[CountedImages], tokens_per_image: TokensPerImage) -> Ints:
    """Return the tokens of all images of each sample [len(dataset)]. Raises UsageError for no field of images."""
    if not images:
        raise UsageError("tokens_per_image: expected a field of images, such as hr.Images(), got none; leave it out")
    total = np.zeros(len(dataset), np.int64)
    for each in images:
        total += each.tokens(dataset, tokens_per_image)
    return total
