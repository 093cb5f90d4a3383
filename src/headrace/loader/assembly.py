"""One batch in the native core: its memory, its jobs, and the result of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace._core import Code, ViewColumn
from headrace.data import StringColumn, native_paths
from headrace.errors import UsageError
from headrace.fetch import FetchAhead, FetchCancelled
from headrace.loader.bad_samples import error_of
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.batch_values import BatchRows
from headrace.loader.cache import EpochCache
from headrace.loader.decoding import pixels
from headrace.loader.decoding.on_device import DeviceImages
from headrace.loader.decoding.pixels import all_options, all_parts, decoded_with, parts_of
from headrace.loader.recipe import Recipe
from headrace.plan import BatchPlan, output_sizes

Ints = NDArray[np.int64]
Item = bytes | NDArray[np.generic] | None
"""Content of a field that Python already holds: encoded bytes, or pixels [H, W, C] of uint8, uint16 or float32. The
core reads the byte range of the file for None."""


class Cancelled(Exception):  # noqa: N818  # how a pass ends, no error
    """Signal that the pass was closed while the core worked."""


@dataclass
class Pending:
    """Batch that the core works on, without the rows that were left out."""

    rows: BatchRows
    size: tuple[int, int]
    """Height and width of every image that follows the Loader's view."""
    memory: list[NDArray[np.uint8]]
    """Blocks of memory, one for each part of the fields of pixels, in the core's layout."""
    raws: list[list[bytes]]
    job: _core.Job
    views: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, len(ViewColumn))))
    """Views of the rows, float64[N, 17] (columns: `ViewColumn`), once the core is done."""
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 2), np.int32))
    """Width and height of the images from which the views are drawn, [N, 2]."""
    images: Mapping[str, Pending] = field(default_factory=dict)
    """Images of each field of several a sample, which are rows of a batch of their own."""
    contents: list[list[Any]] = field(default_factory=list)
    """Contents of each field that Python makes, by row, once the core is done."""
    on_device: DeviceImages | None = None
    """Images that the device decoded; None if the core decodes them all."""
    by_core: dict[int, NDArray[np.uint8]] = field(default_factory=dict)
    """Blocks of rows that the core decoded instead of the device."""

    def take_row(self, row: int, job: _core.Job) -> list[bytes]:
        """Take what a job of one row has made, and return its fields of bytes."""
        self.views[row], self.sizes[row] = job.views[0], job.sizes[0]
        found = [job.raw(i)[0] for i in range(len(self.raws))]
        for raw, value in zip(self.raws, found, strict=True):
            raw[row] = value
        return found

    def keep(self, rows: list[int]) -> None:
        """Reduce the batch to `rows`, except for the memory of its images."""
        self.rows = self.rows[rows]
        self.raws = [[raw[row] for row in rows] for raw in self.raws]
        self.contents = [[content[row] for row in rows] for content in self.contents]
        self.views, self.sizes = self.views[rows], self.sizes[rows]


class Assembly:
    """Builder and submitter of batches for one engine.

    One thread uses it at a time, except for `start_rows`, `resize` and `read`.
    """

    def __init__(
        self,
        recipe: Recipe,
        engine: _core.Engine,
        memory: BatchMemory,
        cache: EpochCache | None,
        ahead: FetchAhead | None = None,
    ) -> None:
        self._recipe = recipe
        self._cache = cache
        self._ahead = ahead
        self._engine = engine
        self._blocks = memory
        files = {column: recipe.dataset.files(column) for _, _, column in (*recipe.images, *recipe.raws)}
        held = {column: each for column, each in files.items() if isinstance(each.names, StringColumn)}
        shared = {id(each): native_paths(each) for each in held.values()}  # opens an archive of two columns only once
        self._paths = {column: shared[id(each)] for column, each in held.items()}
        self._augment = None if recipe.augment is None else recipe.augment.native
        self._options = [_core.ImageOptions(**options) for options in all_options(recipe.images, recipe.program)]
        self._alone = [first in (-1, at) for at, first in enumerate(decoded_with(recipe.images))]
        self._parts = all_parts(recipe.images)
        ends = np.cumsum([len(parts_of(name, field)) for name, field, _ in recipe.images], dtype=int).tolist()
        self._outputs = [slice(start, end) for start, end in pairwise([0, *ends])]

    def start(self, plan: BatchPlan) -> Pending:
        """Submit a batch to the core. If the output size depends on the images, read their headers first."""
        recipe = self._recipe
        key = recipe.plan.key(plan.epoch)
        return self.start_batch(
            BatchRows(recipe.dataset, plan, key, plan.samples.copy(), plan.passes.copy(), plan.positions)
        )

    def start_batch(self, rows: BatchRows) -> Pending:
        """Submit the rows of a batch to the core, as `start` does."""
        recipe, plan = self._recipe, rows.plan
        known = recipe.program.output_size if plan.view is None else plan.view.size
        size = known or self._measure(rows)
        memory = [] if recipe.decode_on else self._memory(len(rows), size)
        return Pending(rows, size, memory, [], self._submit(rows, size, memory, None))

    def resize(self, pending: Pending) -> None:
        """Adopt the size of a replacement if it is the only image of the batch and the view does not fix a size."""
        left = self._recipe.program.output_size is None and pending.rows.plan.view is None
        if left and self._recipe.followers and len(pending.rows) == 1:
            pending.size = self._measure(pending.rows)
            pending.memory = self._memory(1, pending.size)

    def of_images(self, recipe: Recipe, cache: EpochCache | None, ahead: FetchAhead | None) -> Assembly:
        """Return the assembly of other rows, with the same engine and memory."""
        return Assembly(recipe, self._engine, self._blocks, cache, ahead)

    def acquire(self, nbytes: int) -> NDArray[np.uint8]:
        """Return memory for a part of a batch."""
        return self._blocks.acquire(nbytes)

    def _memory(self, samples: int, size: tuple[int, int]) -> list[NDArray[np.uint8]]:
        return [self._blocks.acquire(samples * part.nbytes(size)) for part in self._parts]

    @property
    def is_remote(self) -> bool:
        """True if bytes are fetched, so that the core has no local file for a sample that was not fetched."""
        return self._ahead is not None

    @contextmanager
    def memory_for(self, nbytes: int) -> Iterator[None]:
        """Wait until a library may use `nbytes` to decode an image, alongside the core and other threads."""
        self._engine.take_memory(nbytes)
        try:
            yield
        finally:
            self._engine.give_memory_back(nbytes)

    def close(self) -> None:
        """Close the archives. No job may be running."""
        for paths in self._paths.values():
            paths.close()

    def start_rows(self, pending: Pending, row: int, items: list[Item]) -> _core.Job:
        """Resubmit one row of a batch, with `items` instead of the bytes of its images."""
        sizes = [part.nbytes(pending.size) for part in self._parts]
        if self._recipe.decode_on:
            memory = [np.empty(size, np.uint8) for size in sizes]
            pending.by_core[row] = memory[0]
        else:
            memory = [block[row * one : (row + 1) * one] for block, one in zip(pending.memory, sizes, strict=True)]
        return self._submit(pending.rows[row : row + 1], pending.size, memory, [[item] for item in items])

    def keep_rows(self, pending: Pending, rows: list[int]) -> None:
        """Reduce the batch to `rows`, moved to the start of the same memory. No job of the batch may be running."""
        for part, block in zip(self._parts, pending.memory, strict=True):
            one = part.nbytes(pending.size)
            images = block[: len(pending.rows) * one].reshape(len(pending.rows), one)
            images[: len(rows)] = images[rows]
        pending.keep(rows)

    def _submit(
        self,
        rows: BatchRows,
        size: tuple[int, int],
        memory: list[NDArray[np.uint8]],
        items: list[list[Item]] | None,
    ) -> _core.Job:
        view = rows.plan.view
        job = self._job(rows, self._recipe.program.ops if view is None else view.ops)
        for i, (name, _, column) in enumerate(self._recipe.images if memory else ()):
            out = memory[self._outputs[i]]
            height, width = self._parts[self._outputs[i].start].size_in(size)
            job.add_image(
                self._ranges(column, rows.samples, again=items is not None),
                self._options[i],
                memory=None if items is None else items[i],
                out=out[0],
                valid=out[1] if len(out) > 1 else None,
                height=height,
                width=width,
                cache=self._cached(name) if self._alone[i] else None,  # other fields share a decode
            )
        for name, _, column in self._recipe.raws:
            job.add_raw(self._ranges(column, rows.samples, again=items is not None), cache=self._cached(name))
        if not memory and self._recipe.decode_on:  # the device decodes its bytes
            job.add_raw(self._ranges(self._recipe.images[0][2], rows.samples))
        self._engine.submit(job)
        return job

    def read(self, field: str, column: str, sample: int) -> bytes:
        """Read the undecoded bytes of one sample through the engine, which retries, counts and can cancel the read.

        Raises Cancelled, or the failure.
        """
        samples = np.array([sample])
        dataset = self._recipe.dataset
        ids = samples if dataset.base_ids is None else dataset.base_ids[samples]
        job = _core.Job(ids, np.zeros(1, np.uint32), key=0, program=self._recipe.program.ops)
        job.add_raw(self._ranges(column, samples, again=True))
        self._engine.submit(job)
        job.wait()
        for failure in job.failures():
            if failure.code == Code.CANCELLED:
                raise Cancelled
            code, why = failure.code, failure.why
            raise error_of(code, why, dataset=dataset, sample=sample, field=field, column=column)
        return job.raw(0)[0]

    def forget(self, sample: int) -> bool:
        """Drop a sample's fetched bytes so that the next read fetches them again. Return False if they are local."""
        return self._ahead is not None and self._ahead.forget(sample)

    def _job(self, rows: BatchRows, ops: NDArray[np.float64]) -> _core.Job:
        return _core.Job(
            rows.base_ids,
            rows.passes,
            key=rows.key,
            program=ops,
            draw_ids=rows.draw_ids,
            augment=self._augment,
            keeps=self._keeps(rows),
        )

    def _keeps(self, rows: BatchRows) -> NDArray[np.uint8] | None:
        """Return a flag per row, 1 if the cache should store the row; None for all rows."""
        return None if self._cache is None else self._cache.keeps(rows)

    def _cached(self, field: str) -> tuple[_core.Store, int, str] | None:
        cache = self._cache
        return None if cache is None else cache.place(field)

    def _ranges(self, column: str, samples: Ints, *, again: bool = False) -> _core.Ranges:
        """Return the byte ranges of `samples`. `again`: also fetch samples that seemed to be cached."""
        try:
            held = None if self._ahead is None else self._ahead.held(column, samples, all_of_them=again)
        except FetchCancelled:
            raise Cancelled from None
        return self._recipe.dataset.locate(column, samples).native(self._paths.get(column), held)

    def _measure(self, rows: BatchRows) -> tuple[int, int]:
        """Return the single (height, width) that the view gives every image of the batch.

        Images with unreadable headers, or that the view does not fit, do not count: decoding reports them. A batch of
        one such image has no size until a replacement provides it (`resize`). Raises UsageError if the sizes differ.
        """
        recipe = self._recipe
        if not recipe.followers or len(rows) == 0:
            return 0, 0
        name = recipe.images[0][0]
        sizes = self._source_sizes(rows)
        readable = np.flatnonzero(sizes[:, 0] > 0)
        height, width = output_sizes(recipe.program.ops, sizes[readable, 1], sizes[readable, 0])
        found, height, width = (each[height > 0] for each in (readable, height, width))
        if len(found) == 0:
            if len(rows) == 1 or recipe.leaves_out:  # then the batch may be empty
                return 0, 0
            raise UsageError(
                f"field {name!r}: expected images of readable size, got none among {len(rows)} of a batch, and "
                "the view leaves the size to them; give a view of fixed size, such as Resize((height, width))"
            )
        odd = np.flatnonzero((width != width[0]) | (height != height[0]))
        if len(odd):
            (first, height_0, width_0), (other, height_1, width_1) = (
                (recipe.dataset.key(int(rows.samples[found[at]])), height[at], width[at]) for at in (0, int(odd[0]))
            )
            raise UsageError(
                f"field {name!r}: expected images of one size in a batch, got {height_0}x{width_0} (sample {first!r}) "
                f"and {height_1}x{width_1} (sample {other!r}), height x width; give a view that fixes it, such as "
                "Resize((height, width)), buckets=, a RandomScale, or batch_size=1"
            )
        return int(height[0]), int(width[0])

    def _source_sizes(self, rows: BatchRows) -> NDArray[np.int32]:
        """Return (width, height) of the first field's images from their headers; 0 for an unreadable header."""
        name, image, column = self._recipe.images[0]
        job = self._job(rows, self._recipe.program.ops)
        job.probe_only()
        nothing = np.empty(0, np.uint8)
        at = self._ranges(column, rows.samples)
        job.add_image(at, self._options[0], out=nothing, height=0, width=0, cache=self._cached(name))
        self._engine.submit(job)
        job.wait()
        sizes = job.sizes
        for failure in job.failures():
            if failure.code == Code.CANCELLED:
                raise Cancelled
            if failure.code == Code.DECLINED:
                data = self.read(name, column, int(rows.samples[failure.row]))
                sizes[failure.row] = pixels.declined_size(data, image, self._recipe.limits)
        return sizes
