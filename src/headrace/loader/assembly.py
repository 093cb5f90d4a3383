"""One batch in the native core: its memory, its jobs, and what came of each row."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace import _core
from headrace.data import HeldColumn, StringColumn
from headrace.data.columns import native_paths
from headrace.errors import UsageError
from headrace.loader.bad_samples import error_of
from headrace.loader.batch_memory import BatchMemory
from headrace.loader.decoding import pixels
from headrace.loader.decoding.arrays import BatchRows
from headrace.loader.decoding.pixels import core_options, parts_of
from headrace.loader.recipe import Recipe
from headrace.plan import BatchPlan

Ints = NDArray[np.int64]
Passes = NDArray[np.uint32]
Item = bytes | NDArray[np.generic] | None
"""A field's content that Python already holds: encoded, or pixels [H, W, C] of uint8, uint16 or float32; None is read
from its range."""

DECLINED, CANCELLED = 1, 7
"""Codes of the core's failures (core/common/fault.hpp) that are no fault of the sample's."""


class Cancelled(Exception):  # noqa: N818  # how a feed ends, no error
    """The feed was closed while the core worked."""


@dataclass
class Pending:
    """A batch on its way. `samples` are positions in the dataset, which a replacement changes in place, and
    `positions` those in the epoch; rows that are skipped are gone from both."""

    plan: BatchPlan
    key: int
    samples: Ints
    passes: Passes
    positions: Ints
    size: tuple[int, int]
    """Height and width of every image."""
    memory: list[NDArray[np.uint8]]
    """One block a part of the spatial fields, as the core writes it."""
    raws: list[list[bytes]]
    job: _core.Job
    views: NDArray[np.float64] = field(default_factory=lambda: np.empty((0, 16)))
    """[N, 16], as core/batch/job.hpp has them, once the core is done."""
    sizes: NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 2), np.int32))
    """[N, 2]: width and height of the images that the views are drawn from."""
    contents: list[list[Any]] = field(default_factory=list)
    """Of each field that Python makes, by row, once the core is done."""


class Assembly:
    """Describes batches to one engine. Used by one thread at a time, but for `start_rows`, `resize` and `read`."""

    def __init__(self, recipe: Recipe, engine: _core.Engine, memory: BatchMemory) -> None:
        self._recipe = recipe
        self._engine = engine
        self._blocks = memory
        files = {column: recipe.dataset.files(column) for _, _, column in (*recipe.images, *recipe.raws)}
        held = {column: each for column, each in files.items() if isinstance(each.names, StringColumn)}
        shared = {id(each): native_paths(each) for each in held.values()}  # so that an archive of two is open once
        self._paths = {column: shared[id(each)] for column, each in held.items()}
        self._formats = [core_options(field, recipe.program.fill) for _, field, _ in recipe.images]
        self._parts = recipe.parts
        ends = np.cumsum([len(parts_of(name, field)) for name, field, _ in recipe.images], dtype=int).tolist()
        self._outputs = [slice(start, end) for start, end in pairwise([0, *ends])]

    def start(self, plan: BatchPlan) -> Pending:
        """Hands the core a batch. Where the view leaves the size to the images, their sizes are probed first."""
        recipe = self._recipe
        key = recipe.plan.key(plan.epoch)
        samples, passes = plan.samples.copy(), plan.passes.copy()
        known = recipe.program.output_size if plan.view is None else plan.view.size
        size = known or self._measure(samples, passes, key)
        memory = self._memory(len(samples), size)
        job = self._submit(plan, samples, passes, key, size, memory, None)
        return Pending(plan, key, samples, passes, plan.positions, size, memory, [], job)

    def resize(self, pending: Pending) -> None:
        """After a replacement: a batch of one takes its image's size, where the view leaves it to the image."""
        left = self._recipe.program.output_size is None and pending.plan.view is None
        if left and len(pending.samples) == 1:
            pending.size = self._measure(pending.samples, pending.passes, pending.key)
            pending.memory = self._memory(1, pending.size)

    def _memory(self, samples: int, size: tuple[int, int]) -> list[NDArray[np.uint8]]:
        return [self._blocks.acquire(samples * part.nbytes(size)) for part in self._parts]

    def close(self) -> None:
        """Closes the archives that were kept open. Nothing may be under way."""
        for paths in self._paths.values():
            paths.close()

    def start_rows(self, pending: Pending, row: int, items: list[Item]) -> _core.Job:
        """Works again on one row of a batch, with what is in `items` instead of the images' own bytes."""
        part = slice(row, row + 1)
        memory = [block[self._row_bytes(pending, i, row)] for i, block in enumerate(pending.memory)]
        samples, passes = pending.samples[part], pending.passes[part]
        return self._submit(
            pending.plan, samples, passes, pending.key, pending.size, memory, [[item] for item in items]
        )

    def keep_rows(self, pending: Pending, rows: list[int]) -> None:
        """Only these stay, closed up at the start of the same memory. Nothing of the batch may be under way."""
        for i, block in enumerate(pending.memory):
            one = self._parts[i].nbytes(pending.size)
            images = block[: len(pending.samples) * one].reshape(len(pending.samples), one)
            images[: len(rows)] = images[rows]
        pending.samples, pending.passes = pending.samples[rows], pending.passes[rows]
        pending.positions = pending.positions[rows]
        pending.raws = [[raw[row] for row in rows] for raw in pending.raws]
        pending.contents = [[content[row] for row in rows] for content in pending.contents]
        pending.views, pending.sizes = pending.views[rows], pending.sizes[rows]

    def _row_bytes(self, pending: Pending, part: int, row: int) -> slice:
        one = self._parts[part].nbytes(pending.size)
        return slice(row * one, (row + 1) * one)

    def _submit(
        self,
        plan: BatchPlan,
        samples: Ints,
        passes: Passes,
        key: int,
        size: tuple[int, int],
        memory: list[NDArray[np.uint8]],
        items: list[list[Item]] | None,
    ) -> _core.Job:
        ops = self._recipe.program.ops if plan.view is None else plan.view.ops
        job = self._job(samples, passes, key, ops)
        for i, (name, _, column) in enumerate(self._recipe.images):
            out = memory[self._outputs[i]]
            job.add_image(
                **self._ranges(column, samples),
                memory=None if items is None else items[i],
                out=out[0],
                valid=out[1] if len(out) > 1 else None,
                height=size[0],
                width=size[1],
                **self._formats[i],
                **self._cached(name),
            )
        for name, _, column in self._recipe.raws:
            job.add_raw(**self._ranges(column, samples), **self._cached(name, is_raw=True))
        self._engine.submit(job)
        return job

    def read(self, field: str, column: str, sample: int) -> bytes:
        """One sample's undecoded bytes, read by the engine as all that a feed reads, so that what is tried again is
        counted, and ends with the feed. Raises Cancelled, or the failure as it is."""
        samples = np.array([sample])
        job = _core.Job(self.base_ids(samples), np.zeros(1, np.uint32), key=0, program=self._recipe.program.ops)
        job.add_raw(**self._ranges(column, samples))
        self._engine.submit(job)
        job.wait()
        for _, _, code, _, why in job.failures():
            if code == CANCELLED:
                raise Cancelled
            raise error_of(code, why, dataset=self._recipe.dataset, sample=sample, field=field, column=column)
        return job.raw(0)[0]

    def base_ids(self, samples: Ints) -> Ints:
        """What the samples were before any selection."""
        ids = self._recipe.dataset.base_ids
        return samples if ids is None else ids[samples]

    def draw_ids(self, samples: Ints) -> Ints:
        """Return the keys of random draws, so that a sample that a selection repeats gets others each time."""
        return self._recipe.dataset.draw_ids(samples)

    def rows(self, samples: Ints, passes: Passes, key: int) -> BatchRows:
        """Describe these samples to fields that Python makes."""
        return BatchRows(
            samples=samples, base_ids=self.base_ids(samples), draw_ids=self.draw_ids(samples), passes=passes, key=key
        )

    def _job(self, samples: Ints, passes: Passes, key: int, ops: NDArray[np.float64]) -> _core.Job:
        return _core.Job(self.base_ids(samples), passes, key=key, program=ops, draw_ids=self.draw_ids(samples))

    def _cached(self, field: str, *, is_raw: bool = False) -> dict[str, Any]:
        cache = self._recipe.cache
        return {} if cache is None else cache.options(field, is_raw=is_raw)

    def _ranges(self, column: str, samples: Ints) -> dict[str, Any]:
        at = self._recipe.dataset.locate(column, samples)._asdict()
        files = at.pop("files")
        return {"paths": self._paths[column] if files is None else native_paths(files), **at}

    def values(self, column: HeldColumn, samples: Ints) -> Any:
        """A column's entries: an array of numbers, or a list."""
        return column.take(self.base_ids(samples))

    def _measure(self, samples: Ints, passes: Passes, key: int) -> tuple[int, int]:
        """The one (height, width) that the view makes of every image of the batch. Raises UsageError where they differ.

        Images whose header cannot be read do not count: what is wrong with them is found out when they are decoded. A
        batch of one such image has no size until a replacement gives it one (`resize`).
        """
        if not self._recipe.images or len(samples) == 0:
            return 0, 0
        name = self._recipe.images[0][0]
        sizes = self._source_sizes(samples, passes, key)
        rows = np.flatnonzero(sizes[:, 0] > 0)
        if len(rows) == 0:
            if len(samples) == 1 or self._recipe.on_error == "skip":  # which leaves nothing of it
                return 0, 0
            raise UsageError(
                f"field {name!r}: expected images of readable size, got none among {len(samples)} of a batch, and "
                "the view leaves the size to them; give a view of fixed size, such as Resize((height, width))"
            )
        views = _core.sample_views(
            self._recipe.program.ops,
            key,
            self.draw_ids(samples)[rows],
            passes[rows],
            0,
            np.ascontiguousarray(sizes[rows, 0]),
            np.ascontiguousarray(sizes[rows, 1]),
        )
        width, height = (views[:, k].astype(np.int64) for k in (8, 9))
        odd = np.flatnonzero((width != width[0]) | (height != height[0]))
        if len(odd):
            self._refuse_sizes(name, samples[rows], height, width, int(odd[0]))
        return int(height[0]), int(width[0])

    def _source_sizes(self, samples: Ints, passes: Passes, key: int) -> NDArray[np.int32]:
        """(width, height) of the first field's images, from their headers; 0 for those that cannot be read."""
        name, image, column = self._recipe.images[0]
        job = self._job(samples, passes, key, self._recipe.program.ops)
        job.probe_only()
        nothing = np.empty(0, np.uint8)
        job.add_image(
            **self._ranges(column, samples),
            memory=None,
            out=nothing,
            height=0,
            width=0,
            **self._formats[0],
            **self._cached(name),
        )
        self._engine.submit(job)
        job.wait()
        sizes = job.sizes
        for row, _, code, _, _ in job.failures():
            if code == CANCELLED:
                raise Cancelled
            if code == DECLINED:
                sizes[row] = pixels.declined_size(
                    self.read(name, column, int(samples[row])), image, self._recipe.limits
                )
        return sizes

    def _refuse_sizes(self, name: str, samples: Ints, height: Ints, width: Ints, odd: int) -> None:
        dataset = self._recipe.dataset
        raise UsageError(
            f"field {name!r}: expected images of one size in a batch, got {height[0]}x{width[0]} "
            f"(sample {dataset.key(int(samples[0]))!r}) and {height[odd]}x{width[odd]} "
            f"(sample {dataset.key(int(samples[odd]))!r}), height x width; "
            "give a view that fixes it, such as Resize((height, width)), buckets=, a RandomScale, or batch_size=1"
        )
