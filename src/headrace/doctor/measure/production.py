"""Production of batches in each loader: stages, busy share, and cores."""

from __future__ import annotations

import re
from statistics import fmean, median

from headrace.doctor.measure.batches import Join, StageCosts, line_parts, made_us
from headrace.doctor.measure.diagnosis import LoaderProduction
from headrace.doctor.measure.steps import MeasuredTraining, is_here, whole_fact
from headrace.doctor.session.trainers import LoaderFacts, Trainer

TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")
BATCH_DIMS = 4
"""Dimensions of a batch of images."""
COLOURS = {1, 3, 4}
"""Possible first dimensions of a single image."""


def batch_production(training: MeasuredTraining, join: Join) -> list[LoaderProduction]:
    """Return the loaders that produced batches in measured steps: awaited ones first, then by busy time."""
    trainer = training.trainer
    received = [
        row
        for gets in (trainer.gets, trainer.fetches)
        for row in zip(gets.pass_, gets.index, gets.start, gets.duration, strict=True)
    ]
    found = [_production(training, join, loader, received) for loader in trainer.loaders]
    known = [one for one in found if one is not None]
    return sorted(known, key=lambda one: (one.loader not in training.fed, -one.batches * one.batch_us))


def _production(
    training: MeasuredTraining, join: Join, loader: LoaderFacts, received: list[tuple[int, int, int, int]]
) -> LoaderProduction | None:
    """Return a loader's production; `received` has the pass, index, start and duration of each `next()`.

    The producers of a pass had work from its start to its last batch, within the measured steps.
    """
    trainer = training.trainer
    passes = [one for one in trainer.passes if one.loader == loader.number and one.start < training.until]
    numbers = {one.number for one in passes}
    ends: dict[int, int] = {}  # when the last batch of each pass was received
    for number, _, start, duration in received:
        ends[number] = max(ends.get(number, 0), start + duration)
    made, time = [], 0
    for one in passes:
        if one.number not in ends or not training.steps:
            continue
        start, end = max(one.start, training.steps[0].start), min(ends[one.number], training.steps[-1].end)
        if end <= start:
            continue
        finder = join.finder(trainer, one)
        of_pass = [one for one in finder.batches() if start <= one.maker.batches.fetched[one.row] <= end]
        made += of_pass
        time += end - start
    if not made:
        return None
    makers = list({id(maker): maker for maker, _ in made}.values())
    size = whole_fact(loader.facts, "batch_size")
    item_samples = _item_samples(trainer, loader, numbers)
    costs = StageCosts.of(made, size, item_samples)
    batch_us = fmean(made_us(maker, row) for maker, row in made)
    workers = max(len(one.workers) for one in passes)
    first = [duration for number, index, _, duration in received if index == 0 and number in numbers]
    return LoaderProduction(
        trainer=trainer.pid,
        loader=loader.number,
        workers=0 if is_here(trainer, passes[-1]) else workers,
        batches=len(made),
        busy=min(1.0, len(made) * batch_us / (time * workers)),
        cores=len(made) * costs.cpu / costs.batches / time,
        batch_us=batch_us,
        stages=costs.parts(),
        lines=line_parts(makers),
        start_up_us=fmean(one.ready - one.start for one in passes),
        first_batch_us=fmean(first) if first else None,
        passes=len(passes),
        respawned=not is_here(trainer, passes[0]) and any(one.workers != passes[0].workers for one in passes),
        item_samples=item_samples,
    )


def _item_samples(trainer: Trainer, loader: LoaderFacts, passes: set[int]) -> int:
    """Return the samples per item: if the dataset makes batches, the first dimension of its batches."""
    if "batch_size" not in loader.facts or loader.facts["batch_size"] is not None:
        return 1
    gets = trainer.gets
    seen = [shape for number, shape in zip(gets.pass_, gets.shape, strict=True) if number in passes]
    rows = [found for shape in seen if shape is not None and (found := batch_rows(trainer.shapes[shape]))]
    return round(median(rows)) if rows else 1


def tensors_of(shape: str) -> list[tuple[str, tuple[int, ...]]]:
    """Return dtype and sizes of each tensor in the text of a shape, such as `float32[64,3,224,224] int64[64]`."""
    return [(dtype, tuple(int(size) for size in sizes.split(",") if size)) for dtype, sizes in TENSOR.findall(shape)]


def batch_rows(shape: str) -> int | None:
    """Return the number of rows in a batch from its shapes.

    None if its tensors have different first dimensions, or if a single tensor may be one sample.
    """
    dims = [sizes for _, sizes in tensors_of(shape)]
    first = {one[0] if one else 0 for one in dims}
    if len(first) != 1 or first <= {0, 1}:
        return None
    is_batch = max(map(len, dims)) >= BATCH_DIMS or (len(dims) > 1 and not first <= COLOURS)
    return first.pop() if is_batch else None
