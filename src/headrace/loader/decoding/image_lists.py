"""Fields of several images a sample: their images are rows of a batch of their own, which the core decodes alike."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from headrace._core import RowFailure
from headrace.data import ITEM, ListItems
from headrace.errors import DecodeError, SampleError, UsageError
from headrace.fields import Images
from headrace.loader.batch_values import BatchRows
from headrace.loader.decoding.pixels import PixelPart, parts_of
from headrace.loader.recipe import Recipe
from headrace.plan import ImagePlan

if TYPE_CHECKING:
    from headrace.fetch import FetchAhead
    from headrace.loader.assembly import Assembly, Pending

    Repair: TypeAlias = Callable[[Pending, int, RowFailure], SampleError | None]
    """Function that decodes a row after the core's failure, and returns the error of a bad image."""

Each: TypeAlias = Callable[[Callable[[int], Any], Sequence[int]], Iterable[Any]]
"""Function that calls another for each row, in parallel or not, and returns the results."""
COUNTS = "_counts"
"""Suffix of the name of the number of images of each sample."""


@dataclass
class ImageRows(BatchRows):
    """Images of a batch: rows of the images' own dataset, drawn as their samples are."""

    owners: NDArray[np.int64]
    """Row of the batch with each image's sample."""
    draws: NDArray[np.int64]

    def __getitem__(self, rows: slice | list[int]) -> ImageRows:
        return replace(
            self,
            samples=self.samples[rows],
            passes=self.passes[rows],
            positions=self.positions[rows],
            owners=self.owners[rows],
            draws=self.draws[rows],
        )

    @property
    def draw_ids(self) -> NDArray[np.int64]:
        return self.draws


class SampleImages(NamedTuple):
    """Images of one sample: rows `first` to `first + images` of a block of memory."""

    block: NDArray[np.uint8]
    first: int
    images: int
    size: tuple[int, int]
    """Height and width."""


def image_recipe(recipe: Recipe, name: str, field: Images, items: ListItems) -> Recipe:
    """Return the recipe of a field's images alone, as samples of their own dataset."""
    stream = int.from_bytes(hashlib.blake2b(f"images {name}".encode(), digest_size=8).digest(), "little")
    return replace(
        recipe,
        dataset=items.dataset,
        plan=ImagePlan(recipe.plan, recipe.plan.steps, recipe.dataset, items.offsets, field, stream),
        fields={name: field.image},
        images=((name, field.image, ITEM),),
        raws=(),
        values=(),
        lists=(),
        has_places=False,
        texts=(),
        packed=None,
        measured=None,
        map=None,
        map_workers=0,
        batch_map=None,
        mixing=None,
        pass_samples=None,
    )


class ImageListContent:
    """Field of several images a sample. One thread starts and finishes batches; any thread takes single rows."""

    def __init__(
        self,
        name: str,
        field: Images,
        recipe: Recipe,
        assembly: Assembly,
        repair: Repair,
        ahead: FetchAhead | None,
    ) -> None:
        """Take the recipe of the images (`image_recipe`), and what decodes and repairs their batches."""
        self.name = name
        self._field = field
        self._recipe = recipe
        self._assembly = assembly
        self._repair = repair
        self._ahead = ahead
        assert isinstance(recipe.plan, ImagePlan)
        self._plan = recipe.plan
        (part,) = parts_of(name, field.image)
        self._part = part if field.count is None else replace(part, copies=field.count)
        self._one: PixelPart = part

    def start(self, samples: BatchRows) -> Pending:
        """Submit the images of a batch's samples to the core; their bytes are fetched ahead, step by step."""
        if self._ahead is not None:
            self._ahead.begin(samples.plan.step)
        return self._submit(samples)

    def _submit(self, samples: BatchRows) -> Pending:
        plan, owners = self._plan.images_of(
            replace(samples.plan, samples=samples.samples, passes=samples.passes, positions=samples.positions)
        )
        draws = samples.draw_ids[owners] if self._field.view_per == "sample" else plan.samples
        dataset, key = self._recipe.dataset, samples.key
        rows = ImageRows(dataset, plan, key, plan.samples, plan.passes, plan.positions, owners, draws)
        return self._assembly.start_batch(rows)

    def finish(
        self,
        samples: BatchRows,
        pending: Pending,
        each: Each,
    ) -> list[SampleImages | SampleError]:
        """Wait for the core, and return each sample's images, or the error of its first bad image.

        `pending` is what `start` gave for the samples.
        """
        contents = self._collect(samples, pending, each)
        if self._ahead is not None:
            self._ahead.end(samples.plan.step)
        return contents

    def take(self, rows: BatchRows, raws: Sequence[Sequence[bytes]]) -> list[Any]:
        return self._collect(rows, self._submit(rows), lambda function, numbers: [function(row) for row in numbers])

    def _collect(
        self,
        samples: BatchRows,
        pending: Pending,
        each: Each,
    ) -> list[SampleImages | SampleError]:
        rows = pending.rows
        assert isinstance(rows, ImageRows), "`start` has made them"
        job = pending.job
        job.wait()
        pending.raws, pending.views, pending.sizes = [], job.views, job.sizes
        failures = {failure.row: failure for failure in job.failures()}
        bad = sorted(failures)
        repaired = each(lambda row: self._repair(pending, row, failures[row]), bad)
        errors: dict[int, SampleError] = {}
        for row, error in zip(bad, repaired, strict=True):
            if error is not None:
                errors.setdefault(int(rows.owners[row]), self._of_sample(rows, row, error, samples))
        counts = np.bincount(rows.owners, minlength=len(samples))
        first = np.cumsum(counts) - counts
        block = pending.memory[0] if pending.memory else np.empty(0, np.uint8)
        contents: list[SampleImages | SampleError] = [
            SampleImages(block, start, count, pending.size)
            for start, count in zip(first.tolist(), counts.tolist(), strict=True)
        ]
        for row, error in errors.items():
            contents[row] = error
        if self._field.count is not None:
            for row in np.flatnonzero(counts == 0).tolist():
                contents[row] = self._none(samples, row)
        return contents

    def _of_sample(self, rows: ImageRows, row: int, error: SampleError, samples: BatchRows) -> SampleError:
        """Return an image's error as that of its sample."""
        owner = int(rows.owners[row])
        place = int(rows.samples[row] - self._plan.offsets[samples.base_ids[owner]])
        key = samples.dataset.key(int(samples.samples[owner]))
        why = f"image (item {place}): {error.why}"
        return type(error)(why, key=key, shard=error.shard, offset=error.offset, field=self.name)

    def _none(self, samples: BatchRows, row: int) -> SampleError:
        dataset, sample = samples.dataset, int(samples.samples[row])
        return DecodeError(
            "expected at least one image, got none",
            key=dataset.key(sample),
            shard=dataset.table.source,
            field=self.name,
        )

    def join(self, contents: list[SampleImages], rows: BatchRows, longest: int) -> dict[str, Any]:
        counts = np.array([content.images for content in contents], np.int64)
        total = int(counts.sum())
        size = max(contents, key=lambda content: content.images).size if contents else (0, 0)
        for row, content in enumerate(contents):
            if content.images and content.size != size:
                key = rows.dataset.key(int(rows.samples[row]))
                raise UsageError(
                    f"field {self.name!r}: expected images of one size in a batch, got {size[0]}x{size[1]} and "
                    f"{content.size[0]}x{content.size[1]} (sample {key!r}), height x width; give a view that fixes it, "
                    "such as Resize((height, width))"
                )
        block = self._joined(contents, total, size)
        samples = len(contents) if self._field.count is not None else total
        values = self._part.over(block, samples, size, self._recipe.output)
        return {self.name: values} if self._field.count is not None else {self.name: values, self.name + COUNTS: counts}

    def _joined(self, contents: list[SampleImages], total: int, size: tuple[int, int]) -> NDArray[np.uint8]:
        """Return a block of memory with all images in order: the core's, unless samples were left out or replaced."""
        place = 0
        for content in contents:
            if content.images and (content.block is not contents[0].block or content.first != place):
                break
            place += content.images
        else:
            if contents and contents[0].block.nbytes:
                return contents[0].block
        one = self._one.nbytes(size)
        block = self._assembly.acquire(total * one) if total else np.empty(0, np.uint8)
        place = 0
        for content in contents:
            part = content.block[content.first * one : (content.first + content.images) * one]
            block[place : place + part.nbytes] = part
            place += part.nbytes
        return block
