"""Production of batches in each loader: stages, busy share, and cores.

Headrace's Loader counts the work of its threads by stage, and names its limit (`stats()`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

from headrace.doctor.measure.batches import Join, StageCosts, StageSums, line_parts, made_us
from headrace.doctor.measure.diagnosis import LoaderProduction
from headrace.doctor.measure.steps import MeasuredTraining, is_here, is_source, whole_fact
from headrace.doctor.session.trainers import LoaderFacts, Trainer

CATEGORIES = {
    "read": "read",
    "probe": "scan",
    "decode": "decode",
    "resample": "transform",
    "augment": "transform",
    "map": "map",
    "text": "tokenise",
    "python": "python",
    "store": "remote",
}
"""Category of docs/doctor/internals.md for each stage of a Loader."""
CORE = ("read", "probe", "decode", "resample", "augment")
SOURCE = "source"
"""Category of a source that is no loader: a function or iterator that the loop calls for a batch."""
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
    made = [*(one for one in found if one is not None), *_feed_productions(training)]
    return sorted(made, key=lambda one: (one.loader not in training.fed, -one.batches * one.batch_us))


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
        threads=False,
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


def last_feeds(training: MeasuredTraining) -> dict[int, dict[str, Any]]:
    """Return the last figures that each Loader counted of a pass in the undisturbed run, by number."""
    loader_of = {one.number: one.loader for one in training.trainer.passes}
    feeds = [one for one in training.trainer.feeds if one.pass_ in loader_of and one.time < training.until]
    return {loader_of[one.pass_]: one.facts for one in feeds}


def _feed_productions(training: MeasuredTraining) -> Iterator[LoaderProduction]:
    """Yield the production of Loaders, from their own counts."""
    trainer = training.trainer
    loaders = {loader.number: loader for loader in trainer.loaders}
    for number, facts in last_feeds(training).items():
        batches, wall_s, passes = (
            facts["batches"],
            facts["wall_s"],
            [one for one in trainer.passes if one.loader == number],
        )
        if number not in loaders or batches < 1 or wall_s <= 0:
            continue
        counts: dict[str, tuple[float, float]] = facts["stages"] | {"python": (batches, facts["python_s"])}
        core_s = sum(busy_s for stage, (_, busy_s) in counts.items() if stage in CORE)
        mapped_s = counts["map"][1] if facts.get("map_workers") and "map" in counts else 0.0
        stages = {
            f"{CATEGORIES.get(stage, stage)}:{own_name(loaders[number])}": StageSums(items, busy_s * 1e6)
            for stage, (items, busy_s) in counts.items()
            if busy_s > 0
        }
        yield LoaderProduction(
            trainer=trainer.pid,
            loader=number,
            workers=facts.get("threads") or 0,
            batches=round(batches),
            busy=core_s / (core_s + facts["idle_s"]) if core_s > 0 else 0.0,
            cores=(core_s + facts["python_s"] + mapped_s) / wall_s,
            batch_us=core_s / batches * 1e6,
            stages=StageCosts(batches, facts["samples"] or batches, stages).parts(),
            lines=[],
            start_up_us=fmean(one.ready - one.start for one in passes) if passes else None,
            first_batch_us=None,
            passes=len(passes),
            respawned=False,
            threads=True,
        )


def shares_of_feeds(training: MeasuredTraining) -> dict[int, dict[str, float]]:
    """Return the stage that a wait for each Loader, or another source, is for."""
    feeds, found = last_feeds(training), dict[int, dict[str, float]]()
    for loader in training.trainer.loaders:
        if loader.number in feeds:
            limit = CATEGORIES.get(feeds[loader.number].get("limit", ""), "python")
            found[loader.number] = {f"{limit}:{own_name(loader)}": 1.0}
        elif is_source(loader):
            place = f"{os.path.basename(str(loader.facts.get('file')))}:{loader.facts.get('line')}"
            found[loader.number] = {f"{SOURCE}:{loader.facts['source']}, {place}": 1.0}
    return found


def own_name(loader: LoaderFacts) -> str:
    """Return a name such as `headrace.Loader`."""
    return f"headrace.{str(loader.facts.get('dataset', '')).rpartition('.')[2]}"
