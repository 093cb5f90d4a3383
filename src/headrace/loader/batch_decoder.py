"""Decoded batches: the core's part, the rows that it could not do, and the fields made of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.data.class_names import parse_labels
from headrace.errors import SampleError
from headrace.feed.contents import Content, Places
from headrace.feed.decoded import Decoded
from headrace.feed.outputs import Converter
from headrace.feed.python_threads import PythonThreads
from headrace.feed.resolving import contents_of
from headrace.feed.rows import Failure, RowMender
from headrace.feed.size_check import DepthCheck, SizeCheck
from headrace.fields import Image, Label, Spatial
from headrace.loader.assembly import Assembly, Pending
from headrace.loader.bad_samples import BadSamples
from headrace.loader.decoding.detection import PerSample
from headrace.loader.decoding.texts import TextMeter
from headrace.loader.recipe import Batch, Recipe
from headrace.plan import BatchPlan


class BatchDecoder:
    """Starts batches, and finishes them in any order. One thread's."""

    def __init__(self, recipe: Recipe, assembly: Assembly, bad: BadSamples, threads: PythonThreads) -> None:
        self._recipe = recipe
        self._assembly = assembly
        self.texts = TextMeter()
        self._contents: tuple[Content, ...] = contents_of(recipe, self.texts)
        self._made = {content.name for content in self._contents}
        self._mender = RowMender(recipe, assembly, bad, self._contents)
        self._converter = Converter(recipe)
        self._threads = threads
        self._parts = recipe.parts
        self._names = recipe.names
        self._size_check = SizeCheck(recipe.dataset, recipe.images[0][0]) if recipe.images else None

        self._depth_check = DepthCheck(recipe.dataset, [name for name, field, _ in recipe.images if _is_cut(field)])

    def start(self, plan: BatchPlan) -> Pending:
        return self._assembly.start(plan)

    def finish(self, pending: Pending) -> Decoded:
        """Waits for the core. Raises what the error policy says; what it skips is not in the batch."""
        job = pending.job
        job.wait()
        pending.raws = [job.raw(i) for i in range(len(self._recipe.raws))]
        pending.views, pending.sizes = job.views, job.sizes
        failures: dict[int, Failure | SampleError] = {failure[0]: failure for failure in job.failures()}
        if self._size_check is not None:
            self._size_check.look(pending.plan, pending.sizes, failures)
        self._take(pending, failures)
        self._mend(pending, failures)
        self._depth_check.look(job.narrowed + self._mender.narrowed)
        return Decoded(
            dataset=self._recipe.dataset,
            plan=pending.plan,
            key=pending.key,
            samples=pending.samples,
            draw_ids=self._assembly.draw_ids(pending.samples),
            passes=pending.passes,
            positions=pending.positions,
            batch=self._fields(pending),
            nbytes=sum(block.nbytes for block in pending.memory),
        )

    def _take(self, pending: Pending, failures: dict[int, Failure | SampleError]) -> None:
        """The contents of the fields that Python makes. What is wrong with one is added to `failures`, where nothing
        else is wrong with its row."""
        if not self._contents:
            return
        samples, passes = pending.samples, pending.passes
        rows = self._assembly.rows(samples, passes, pending.key)
        pending.contents = [content.take(rows, pending.raws) for content in self._contents]
        for values in pending.contents:
            for row, value in enumerate(values):
                if isinstance(value, SampleError):
                    failures.setdefault(row, value)

    def _mend(self, pending: Pending, failures: Mapping[int, Failure | SampleError]) -> None:
        """By row. In order, so that of several errors the first row's is raised."""
        if not failures:
            return
        rows, skipped = sorted(failures), set()
        mended = self._threads.each(lambda row: self._mender.mend(pending, row, failures[row]), rows)
        for row, raws in zip(rows, mended, strict=True):
            if raws is None:
                skipped.add(row)
                continue
            for i, raw in enumerate(raws):
                pending.raws[i][row] = raw
        if skipped:
            self._assembly.keep_rows(pending, [row for row in range(len(pending.samples)) if row not in skipped])

    def _fields(self, pending: Pending) -> Batch:
        recipe, batch = self._recipe, {}
        for part, memory in zip(self._parts, pending.memory, strict=True):
            batch[part.name] = self._converter.pixels(memory, part, len(pending.samples), pending.size)
        for (name, field, _), raw in zip(recipe.raws, pending.raws, strict=True):
            if name in self._made:
                continue
            batch[name] = self._labels(pending, name, raw) if isinstance(field, Label) else raw
        for name, column in recipe.values:
            values = self._assembly.values(column, pending.samples)
            is_label = isinstance(recipe.fields[name], Label)
            batch[name] = self._converter.labels(values) if is_label else self._converter.values(values)
        places = _places(pending)
        for content, values in zip(self._contents, pending.contents, strict=True):
            longest = (pending.plan.longest or 0) if content.name == recipe.measured else 0
            for name, joined in content.join(values, pending.samples, places, longest).items():
                batch[name] = self._converter.values(joined)
        batch |= self._points(pending)
        return {name: batch[name] for name in self._names}

    def _points(self, pending: Pending) -> Batch:
        """What follows the views."""
        parts = self._recipe.points.make(pending.samples, pending.views, pending.sizes)
        each, values = self._converter.each, self._converter.values
        return {name: each(part) if isinstance(part, PerSample) else values(part) for name, part in parts.items()}

    def _labels(self, pending: Pending, name: str, raw: list[bytes]) -> Any:
        keys = [self._recipe.dataset.key(int(sample)) for sample in pending.samples] if raw else []
        return self._converter.values(parse_labels(raw, keys, name))


def _is_cut(field: Spatial) -> bool:
    """Tell whether it is read as 8 bits though nobody said how many channels, and so which depth, it has."""
    return isinstance(field, Image) and not field.wide and field.channels is None


def _places(pending: Pending) -> Places | None:
    """Of the samples that are left, where the plan has rows of tokens."""
    rows = pending.plan.rows
    return None if rows is None else Places(rows.of(pending.positions), rows.count, rows.length)
