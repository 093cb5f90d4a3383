"""Mends the rows of a batch that the core could not finish: by a library, by a replacement, or by raising."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace.data.pillow_images import TooLargeError
from headrace.errors import HeadraceError, SampleError, TooManyBadSamplesError, UsageError
from headrace.feed import declined
from headrace.feed.contents import Content
from headrace.loader.assembly import CANCELLED, DECLINED, Assembly, Cancelled, Item, Pending
from headrace.loader.bad_samples import MAX_ATTEMPTS, BadSamples, error_of
from headrace.loader.recipe import Recipe

Failure: TypeAlias = tuple[int, int, int, int, str]
"""What the core says of one row: sample, field, code, stage, and why (core/batch/job.hpp)."""

_LIMIT, _CORRUPT = 3, 2


class RowMender:
    """Brings one row at a time to its end. Thread-safe: rows of a batch are mended side by side."""

    def __init__(self, recipe: Recipe, assembly: Assembly, bad: BadSamples, contents: Sequence[Content]) -> None:
        self._recipe = recipe
        self._assembly = assembly
        self._bad = bad
        self._contents = contents
        self.narrowed = 0
        """Images of more than 8 bits a channel that a library made 8 of. Counted by several threads: above 0, or 0."""
        self._names = [(name, column) for name, _, column in (*recipe.images, *recipe.raws)]

    def mend(self, pending: Pending, row: int, failure: Failure | SampleError) -> list[bytes] | None:
        """Leaves the row decoded in the batch's memory, `pending.samples` and `passes` telling what it holds.
        `failure` is what the core said of it, or what is wrong with a content that Python makes.

        Returns its raw fields, or None for a row that is to be skipped. Raises what the error policy says.
        """
        attempt = 0
        known: Failure | SampleError | None = failure
        while True:
            try:
                if isinstance(known, SampleError):
                    raise known
                raws = self._decode(pending, row, known)
                self._take(pending, row, raws)
                return raws
            except SampleError as error:
                if self._recipe.on_error == "raise":
                    raise
                epoch, position = pending.plan.epoch, int(pending.positions[row])
                self._bad.add(int(pending.samples[row]), error, epoch=epoch, position=position)
                if self._recipe.on_error == "skip":
                    self._bad.count_skipped()
                    return None
                self._replace(pending, row, attempt, error)
                attempt, known = attempt + 1, None

    def _replace(self, pending: Pending, row: int, attempt: int, error: SampleError) -> None:
        epoch, position = pending.plan.epoch, int(pending.positions[row])
        if attempt == MAX_ATTEMPTS:
            raise TooManyBadSamplesError(
                f"{attempt} replacements in a row were bad as well; the last: {error}. Look at the dataset"
            ) from error
        sample, pass_ = self._recipe.plan.replacement(epoch, position, attempt)
        pending.samples[row], pending.passes[row] = sample, pass_
        self._bad.count_replaced()
        self._assembly.resize(pending)

    def _decode(self, pending: Pending, row: int, failure: Failure | None) -> list[bytes]:
        """Lets the core try, unless its `failure` is known; what it declines is decoded by a library and handed back
        as pixels, field by field."""
        items: list[Item] = [None] * len(self._recipe.images)
        while True:
            if failure is None:
                job = self._assembly.start_rows(pending, row, items)
                job.wait()
                if not job.failures():
                    pending.views[row], pending.sizes[row] = job.views[0], job.sizes[0]
                    return [job.raw(i)[0] for i in range(len(self._recipe.raws))]
                failure = job.failures()[0]
            _, field, code, _, why = failure
            if code == CANCELLED:
                raise Cancelled
            if code != DECLINED or items[field] is not None:
                raise self._error(pending, row, field, code, why)
            items[field] = self._by_library(pending, row, field, why)
            failure = None

    def _take(self, pending: Pending, row: int, raws: list[bytes]) -> None:
        """The row's contents that Python makes. Raises the SampleError of the first that is bad."""
        if not self._contents:
            return
        part = slice(row, row + 1)
        rows = self._assembly.rows(pending.samples[part], pending.passes[part], pending.key)
        for values, content in zip(pending.contents, self._contents, strict=True):
            (value,) = content.take(rows, [[raw] for raw in raws])
            if isinstance(value, SampleError):
                raise value
            values[row] = value

    def _by_library(self, pending: Pending, row: int, field: int, why: str) -> NDArray[np.generic]:
        name, spatial, column = self._recipe.images[field]
        self._bad.count_declined()
        data = self._assembly.read(name, column, int(pending.samples[row]))
        try:
            self.narrowed += declined.is_narrowed(data, spatial, self._recipe.limits)
            return declined.decode(data, spatial, self._recipe.limits)
        except UsageError:  # a library that is not installed is no fault of the sample's
            raise
        except TooLargeError as error:
            raise self._error(pending, row, field, _LIMIT, str(error)) from error
        except ValueError as error:
            raise self._error(pending, row, field, _CORRUPT, f"{why}, and {error}") from error

    def _error(self, pending: Pending, row: int, field: int, code: int, why: str) -> HeadraceError:
        name, column = self._names[field]
        sample = int(pending.samples[row])
        return error_of(code, why, dataset=self._recipe.dataset, sample=sample, field=name, column=column)
