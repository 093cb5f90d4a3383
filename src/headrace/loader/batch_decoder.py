"""Decoding of a batch: start it in the core, replace bad rows, convert to the output's arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace._core import Code, RowFailure
from headrace.data import ListItems, TooLargeError, parse_labels
from headrace.errors import ChangedError, HeadraceError, SampleError, TooManyBadSamplesError, UsageError
from headrace.fetch import FetchAhead
from headrace.fields import Images, Label
from headrace.loader.assembly import Assembly, Cancelled, Item, Pending
from headrace.loader.bad_samples import MAX_ATTEMPTS, BadSamples, error_of
from headrace.loader.cache import EpochCache
from headrace.loader.decoding import pixels
from headrace.loader.decoding.arrays import FieldContent
from headrace.loader.decoding.content_warnings import AlphaWarning, SourceWarnings
from headrace.loader.decoding.contents import contents_of
from headrace.loader.decoding.detection import BatchMoves, BatchViews, PerSample, resolve_points
from headrace.loader.decoding.frames import Frames
from headrace.loader.decoding.image_lists import ImageListContent, image_recipe
from headrace.loader.decoding.on_device import DeviceDecoding
from headrace.loader.decoding.pixels import all_parts
from headrace.loader.map_stage import PythonThreads
from headrace.loader.recipe import Batch, Recipe, scale_of
from headrace.loader.resolving import names_of
from headrace.loader.stats import StageMeter
from headrace.loader.user_functions import DecodedBatch
from headrace.plan import BatchPlan

FetchImages: TypeAlias = Callable[[Recipe, EpochCache | None], FetchAhead | None]


class RowMender:
    """Recovery of rows that the core could not decode. Thread-safe: rows of a batch are mended in parallel."""

    def __init__(self, recipe: Recipe, assembly: Assembly, bad: BadSamples, contents: Sequence[FieldContent]) -> None:
        self._recipe = recipe
        self._assembly = assembly
        self._bad = bad
        self._contents = contents
        self.narrowed = 0
        """Images of more than 8 bits per channel that a library cut to 8. Threads count at once: only 0 is exact."""
        self._alpha, self.warnings = AlphaWarning(recipe), SourceWarnings(recipe)
        self._names = [(name, column) for name, _, column in (*recipe.images, *recipe.raws)]

    def mend(self, pending: Pending, row: int, failure: RowFailure | SampleError | None) -> bool:
        """Decode the row with a library or a replacement into the batch's memory, and update `pending`.

        `failure` comes from the core, or is the error of a content that Python makes; None before the core has tried.
        Bytes from a store are read once more first, since a proxy may have answered in its place. Returns False to
        leave the row out. Raises what the error policy says.
        """
        attempt = 0
        while (error := self.repair(pending, row, failure)) is not None:
            if self._recipe.on_error == "raise":
                raise error
            epoch, position = pending.rows.plan.epoch, int(pending.rows.positions[row])
            self._bad.add(int(pending.rows.samples[row]), error, epoch=epoch, position=position)
            if self._recipe.leaves_out:
                return False
            self._replace(pending, row, attempt, error)
            attempt, failure = attempt + 1, None
        return True

    def repair(self, pending: Pending, row: int, failure: RowFailure | SampleError | None) -> SampleError | None:
        """Decode the row with a library if the core cannot, into the batch's memory. Return the error of a bad sample.

        Takes `failure` as `mend` does, and reads bytes from a store once more. Raises ChangedError.
        """
        is_first = True
        while True:
            try:
                if isinstance(failure, SampleError):
                    raise failure
                self._take(pending, row, self._decode(pending, row, failure))
                return None
            except (SampleError, ChangedError) as error:
                if is_first and self._assembly.forget(int(pending.rows.samples[row])):
                    self._assembly.resize(pending)
                    is_first, failure = False, None
                    continue
                if not isinstance(error, SampleError):
                    raise
                return error

    def warn_of_alpha(self, pending: Pending) -> None:
        """Warn of alpha that varies in a batch, before any of its rows is replaced."""
        if pending.job.transparent >= 0:
            sample = int(pending.rows.samples[pending.job.transparent])
            for name, field, column in self._recipe.images:
                self._alpha.look(sample, name, field, partial(self._assembly.read, name, column, sample))

    def warn_of_bits(self, pending: Pending) -> None:
        """Warn of images of more than 8 bits in a batch, once all its rows are decoded."""
        self.warnings.check_bits(pending.job.narrowed + self.narrowed)

    def _replace(self, pending: Pending, row: int, attempt: int, error: SampleError) -> None:
        epoch, position = pending.rows.plan.epoch, int(pending.rows.positions[row])
        if attempt == MAX_ATTEMPTS:
            raise TooManyBadSamplesError(
                f"{attempt} replacements in a row were bad as well; the last: {error}. Look at the dataset"
            ) from error
        sample, pass_ = self._recipe.plan.replacement(epoch, position, attempt)
        pending.rows.samples[row], pending.rows.passes[row] = sample, pass_
        self._bad.count("replaced")
        self._assembly.resize(pending)

    def _decode(self, pending: Pending, row: int, failure: RowFailure | None) -> list[bytes]:
        """Decode in the core, unless its `failure` is known. A library first decodes fields that the core declines."""
        items: list[Item] = [None] * len(self._recipe.images)
        if failure is not None and failure.code == Code.IO and self._assembly.is_remote:
            failure = None  # not fetched because it seemed to be cached, and the cached entry is damaged
        while True:
            if failure is None:
                job = self._assembly.start_rows(pending, row, items)
                job.wait()
                if not job.failures():
                    return pending.take_row(row, job)
                failure = job.failures()[0]
            field = failure.field
            if failure.code == Code.CANCELLED:
                raise Cancelled
            if failure.code != Code.DECLINED or items[field] is not None:
                raise self._error(pending, row, field, failure.code, failure.why)
            items[field] = self._by_library(pending, row, field, failure.why)
            failure = None

    def _take(self, pending: Pending, row: int, raws: list[bytes]) -> None:
        """Make the row's contents in Python. Raises the SampleError of the first bad content."""
        rows = pending.rows[row : row + 1]
        for values, content in zip(pending.contents, self._contents, strict=True):
            (value,) = content.take(rows, [[raw] for raw in raws])
            if isinstance(value, SampleError):
                raise value
            values[row] = value

    def _by_library(self, pending: Pending, row: int, field: int, why: str) -> NDArray[np.generic]:
        name, spatial, column = self._recipe.images[field]
        self._bad.count("declined")
        data = self._assembly.read(name, column, int(pending.rows.samples[row]))
        try:
            self.narrowed += pixels.is_narrowed(data, spatial, self._recipe.limits)
            self._alpha.look(int(pending.rows.samples[row]), name, spatial, lambda: data)
            with self._assembly.memory_for(pixels.decode_bytes(data, spatial, self._recipe.limits)):
                return pixels.decode_declined(data, spatial, self._recipe.limits)
        except UsageError:  # a missing library does not make the sample bad
            raise
        except TooLargeError as error:
            raise self._error(pending, row, field, Code.LIMIT, str(error)) from error
        except ValueError as error:
            raise self._error(pending, row, field, Code.CORRUPT, f"{why}, and {error}") from error

    def _error(self, pending: Pending, row: int, field: int, code: int, why: str) -> HeadraceError:
        name, column = self._names[field]
        sample = int(pending.rows.samples[row])
        if code == Code.UNFIT and scale_of(self._recipe.images[field][1]) > 1:
            first, _, of_first = self._recipe.images[0]
            why += f"; field {first!r} is of {self._recipe.dataset.where(of_first, sample)[0]}"
        return error_of(code, why, dataset=self._recipe.dataset, sample=sample, field=name, column=column)


class Converter:
    """Conversion of a batch's parts to the type of the loader's `output`."""

    def __init__(self, recipe: Recipe) -> None:
        self._torch: Any = None
        if recipe.output == "torch":
            import torch

            self._torch = torch

    def labels(self, values: NDArray[Any]) -> Any:
        """Return numbers as one array; integers as int64, whatever type the column has."""
        return self.values(values if values.dtype.kind == "f" else values.astype(np.int64, copy=False))

    def values(self, values: NDArray[Any] | list[Any]) -> Any:
        """Return numbers as one array. A list stays unchanged, except for the arrays in a PerSample."""
        if self._torch is None:
            return values
        if isinstance(values, PerSample):
            return PerSample(self.values(value) for value in values)
        if not isinstance(values, np.ndarray):  # a list, or a tensor already
            return values
        return self._torch.from_numpy(np.ascontiguousarray(values))


class BatchDecoder:
    """Decoder of batches, which may finish in any order. One thread uses it."""

    def __init__(
        self,
        recipe: Recipe,
        assembly: Assembly,
        bad: BadSamples,
        threads: PythonThreads,
        cache: EpochCache | None,
        fetch: FetchImages,
    ) -> None:
        """`fetch` returns the prefetcher of the images of several a sample, with their cache; None for local files."""
        self._recipe = recipe
        self._assembly = assembly
        self._bad = bad
        self._list_menders: dict[str, RowMender] = {}
        self._opened: list[tuple[Assembly, FetchAhead | None]] = []
        self.texts = StageMeter()
        self._lists = [self._list_content(*each, cache, fetch) for each in recipe.lists]
        self._contents: tuple[FieldContent, ...] = (*contents_of(recipe, cache, self.texts), *self._lists)
        self._made = {content.name for content in self._contents}
        self._mender = RowMender(recipe, assembly, bad, self._contents)
        self._converter = Converter(recipe)
        self._threads = threads
        self._parts = all_parts(recipe.images)
        self._names = names_of(recipe.fields, recipe.packed)
        self._places = resolve_points(recipe.dataset, recipe.fields)
        self.device = None if recipe.decode_on is None else DeviceDecoding(recipe)

    def _list_content(
        self,
        name: str,
        field: Images,
        items: ListItems,
        cache: EpochCache | None,
        fetch: FetchImages,
    ) -> ImageListContent:
        recipe = image_recipe(self._recipe, name, field, items)
        cache = None if cache is None else cache.of_images(name)
        ahead = fetch(recipe, cache)
        assembly = self._assembly.of_images(recipe, cache, ahead)
        self._opened.append((assembly, ahead))
        mender = self._list_menders[name] = RowMender(recipe, assembly, self._bad, ())
        return ImageListContent(name, field, recipe, assembly, mender.repair, ahead)

    def start(self, plan: BatchPlan) -> Pending:
        pending = self._assembly.start(plan)
        pending.images = {content.name: content.start(pending.rows) for content in self._lists}
        return pending

    def cancel(self) -> None:
        """Make whoever waits for bytes of images raise Cancelled. Callable from any thread."""
        for _, ahead in self._opened:
            if ahead is not None:
                ahead.close()

    def close(self) -> None:
        """Close what the decoder has opened. No job may be running."""
        self.cancel()
        for assembly, _ in self._opened:
            assembly.close()

    def finish(self, pending: Pending) -> DecodedBatch:
        """Wait for the core and return the batch without skipped rows. Raises what the error policy says."""
        job = pending.job
        job.wait()
        pending.raws = [job.raw(i) for i in range(len(self._recipe.raws))]
        pending.views, pending.sizes = job.views, job.sizes
        failures: dict[int, RowFailure | SampleError | None] = {failure.row: failure for failure in job.failures()}
        if self.device is not None:
            encoded = job.raw(len(self._recipe.raws))
            images = self.device.decode(pending.rows, encoded)
            pending.on_device, pending.views, pending.sizes = images, images.views, images.sizes
            failures |= dict.fromkeys([*failures, *images.left])  # the core tries them, and reports what is wrong
        self._mender.warnings.check_sizes(pending.rows.plan, pending.sizes, failures)
        pending.contents = [
            content.finish(pending.rows, pending.images[content.name], self._threads.each)
            if isinstance(content, ImageListContent)
            else content.take(pending.rows, pending.raws)
            for content in self._contents
        ]
        for values in pending.contents:
            for row, value in enumerate(values):
                if isinstance(value, SampleError):
                    failures.setdefault(row, value)
        menders = [(self._mender, pending)]
        menders += [(self._list_menders[name], listed) for name, listed in pending.images.items()]
        for mender, decoded in menders:
            mender.warn_of_alpha(decoded)
        self._mend(pending, failures)
        for mender, decoded in menders:
            mender.warn_of_bits(decoded)
        nbytes = sum(block.nbytes for each in (pending, *pending.images.values()) for block in each.memory)
        if pending.on_device is not None:
            nbytes += pending.on_device.images.nbytes
        return DecodedBatch(pending.rows, self._fields(pending), nbytes=nbytes)

    def _mend(self, pending: Pending, failures: Mapping[int, RowFailure | SampleError | None]) -> None:
        """Mend rows in order, so that of several errors the first row's is raised."""
        if not failures:
            return
        rows = sorted(failures)
        mended = self._threads.each(lambda row: self._mender.mend(pending, row, failures[row]), rows)
        self._put_rows(pending)
        skipped = {row for row, is_mended in zip(rows, mended, strict=True) if not is_mended}
        if skipped:
            self._assembly.keep_rows(pending, [row for row in range(len(pending.rows)) if row not in skipped])

    def _put_rows(self, pending: Pending) -> None:
        """Copy rows that the core decoded to the device."""
        if pending.on_device is not None:
            last = self._parts[0].channels_last
            for row, block in pending.by_core.items():
                pending.on_device.put(row, block, channels_last=last)

    def _fields(self, pending: Pending) -> Batch:
        recipe = self._recipe
        batch: Batch = {}
        if self.device is not None and pending.on_device is not None:
            batch[self._parts[0].name] = self.device.finished(pending.on_device.images)
        for part, memory in zip(self._parts, pending.memory, strict=self.device is None):
            batch[part.name] = part.over(memory, len(pending.rows), pending.size, recipe.output)
        for (name, field, _), raw in zip(recipe.raws, pending.raws, strict=True):
            if isinstance(field, Label):
                keys = [recipe.dataset.key(int(sample)) for sample in pending.rows.samples]
                batch[name] = self._converter.values(parse_labels(raw, keys, name))
            elif name not in self._made:
                batch[name] = raw
        for name, column in recipe.values:
            values: Any = column.take(pending.rows.base_ids)
            is_label = isinstance(recipe.fields[name], Label)
            batch[name] = self._converter.labels(values) if is_label else self._converter.values(values)
        for content, values in zip(self._contents, pending.contents, strict=True):
            longest = (pending.rows.plan.longest or 0) if content.name == recipe.measured else 0
            for name, joined in content.join(values, pending.rows, longest).items():
                batch[name] = self._converter.values(joined)
        views = BatchViews.of_images(pending.views, pending.sizes, self._turns(pending))
        parts = self._places.make(pending.rows.samples, views, self._moves(pending))
        batch |= {name: self._converter.values(part) for name, part in parts.items()}
        return {name: batch[name] for name in self._names}

    def _turns(self, pending: Pending) -> NDArray[np.int64]:
        if not self._places.annotates:
            return np.ones(len(pending.rows), np.int64)
        name, _, column = self._recipe.images[0]
        read = partial(self._assembly.read, name, column)
        frames = Frames(self._recipe.dataset, self._recipe.images[0], read, self._recipe.limits)
        return frames.turns(pending.rows.samples, pending.sizes)

    def _moves(self, pending: Pending) -> BatchMoves | None:
        augment, rows = self._recipe.augment, pending.rows
        if augment is None or not augment.moves_pixels or not self._places:
            return None
        return BatchMoves(augment.native, rows.key, rows.draw_ids, rows.passes, pending.size)
