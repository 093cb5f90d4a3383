"""Production of batches in each loader: stages, busy share, and cores.

Headrace's Loader counts the work of its threads by stage, from the start of each pass (`stats()`). Its figures here
cover the measured steps if two of its counts fall into them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean, median

from headrace.doctor.measure.batches import Join, StageCosts, StageSums, line_parts, made_us
from headrace.doctor.measure.diagnosis import LoaderProduction
from headrace.doctor.measure.steps import MeasuredTraining, is_here, whole_fact
from headrace.doctor.session.trainers import LoaderFacts, LoaderFeed, Trainer

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
MAP, TEXT, PYTHON, STORE = "map", "text", "python", "store"
TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")
BATCH_DIMS = 4
"""Dimensions of a batch of images."""
COLOURS = {1, 3, 4}
"""Possible first dimensions of a single image."""
SUMMED = ("batches", "samples", "wall_s", "consumer_wait_s", "idle_s", "python_s")
BUSY = 1 / 3
"""Busy share of a Loader's threads below which they are not the bottleneck, as in `Stats.limit`."""
ALWAYS = 0.5
"""The same for workers of `map=` and for a tokenizer."""
WAITING = 0.5
"""Share of the consumer's wait for a store's answers above which the store is the bottleneck."""


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


@dataclass
class FeedSums:
    """Counts of a Loader over all passes, as far as recorded."""

    figures: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    items: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Items by stage."""
    busy_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    fetch: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Remote reads, as in `FetchStats.totals`; empty if all files are local."""
    latency_s: dict[str, float] = field(default_factory=dict)
    """Time to first byte by quantile, at the last count."""
    threads: int = 0
    map_workers: int = 0

    def add(self, first: LoaderFeed | None, last: LoaderFeed) -> None:
        """Add the difference of two counts of one pass; without a first, everything up to `last`."""
        for sign, feed in ((1, last), (-1, first)):
            if feed is not None:
                for name in SUMMED:
                    self.figures[name] += sign * (feed.facts.get(name) or 0)
                for name, (items, busy_s) in feed.facts.get("stages", {}).items():
                    self.items[name] += sign * items
                    self.busy_s[name] += sign * busy_s
                for name, count in feed.facts.get("fetch", {}).items():
                    self.fetch[name] += sign * count
        latency_s = last.facts.get("fetch_latency_s") or {}
        self.latency_s |= {name: value for name, value in latency_s.items() if value is not None}
        self.threads = whole_fact(last.facts, "threads") or self.threads
        self.map_workers = whole_fact(last.facts, "map_workers") or self.map_workers

    @property
    def core_s(self) -> float:
        """Busy seconds of the Loader's threads."""
        return sum(self.busy_s[name] for name in CORE)

    @property
    def core_share(self) -> float:
        """Busy share of its threads' time."""
        return self.core_s / (self.core_s + self.figures["idle_s"]) if self.core_s > 0 else 0.0

    @property
    def limit(self) -> str:
        """Bottleneck while the consumer waits, determined like headrace's `Stats.limit`."""
        if self.fetch.get("fetch_stall_seconds", 0.0) > WAITING * self.figures["consumer_wait_s"]:
            return STORE
        wall_s = self.figures["wall_s"] or 1.0
        shares = {TEXT: self.busy_s[TEXT] / wall_s, MAP: self.busy_s[MAP] / (wall_s * max(self.map_workers, 1))}
        if not self.map_workers:
            shares.pop(MAP)
        for name, share in sorted(shares.items(), key=lambda one: -one[1]):
            if share > max(self.core_share, ALWAYS):
                return name
        return PYTHON if self.core_share < BUSY else max(CORE, key=self.busy_s.__getitem__)


def feed_sums(training: MeasuredTraining) -> dict[int, FeedSums]:
    """Return the summed counts of each Loader, by number."""
    loaders = {one.number: one.loader for one in training.trainer.passes}
    by_pass: dict[int, list[LoaderFeed]] = {}
    for one in training.trainer.feeds:
        by_pass.setdefault(one.pass_, []).append(one)
    sums: dict[int, FeedSums] = {}
    for number, feeds in by_pass.items():
        within = [one for one in feeds if training.is_measured(one.time)]
        first, last = (within[0], within[-1]) if len(within) > 1 else (None, feeds[-1])
        if number in loaders and feeds[-1].time < training.until:
            sums.setdefault(loaders[number], FeedSums()).add(first, last)
    return sums


def _feed_productions(training: MeasuredTraining) -> Iterator[LoaderProduction]:
    """Yield the production of Loaders, from their own counts."""
    trainer = training.trainer
    loaders = {loader.number: loader for loader in trainer.loaders}
    for number, sums in feed_sums(training).items():
        batches, samples, wall_s = (sums.figures[name] for name in ("batches", "samples", "wall_s"))
        if number not in loaders or batches < 1 or wall_s <= 0:
            continue
        passes = [one for one in trainer.passes if one.loader == number]
        mapped_s = sums.busy_s[MAP] if sums.map_workers else 0.0
        name = own_name(loaders[number])
        items, busy_s = sums.items | {PYTHON: batches}, sums.busy_s | {PYTHON: sums.figures["python_s"]}
        stages = {
            f"{CATEGORIES.get(stage, stage)}:{name}": StageSums(items[stage], us * 1e6)
            for stage, us in busy_s.items()
            if us > 0
        }
        yield LoaderProduction(
            trainer=trainer.pid,
            loader=number,
            workers=sums.threads,
            batches=round(batches),
            busy=min(sums.core_share, 1.0),
            cores=(sums.core_s + sums.figures["python_s"] + mapped_s) / wall_s,
            batch_us=sums.core_s / batches * 1e6,
            stages=StageCosts(batches, samples or batches, stages).parts(),
            lines=[],
            start_up_us=fmean(one.ready - one.start for one in passes) if passes else None,
            first_batch_us=None,
            passes=len(passes),
            respawned=False,
            threads=True,
        )


def shares_of_feeds(training: MeasuredTraining) -> dict[int, dict[str, float]]:
    """Return, for each Loader, how a wait is divided among the stages of its bottleneck."""
    names = {loader.number: own_name(loader) for loader in training.trainer.loaders}
    found: dict[int, dict[str, float]] = {}
    for number, sums in feed_sums(training).items():
        limit, name = sums.limit, names.get(number, "")
        busy = {stage: sums.busy_s[stage] for stage in CORE} if limit in CORE else {limit: 1.0}
        whole = sum(busy.values())
        found[number] = {f"{CATEGORIES[stage]}:{name}": us / whole for stage, us in busy.items() if us > 0}
    return found


def own_name(loader: LoaderFacts) -> str:
    """Return a name such as `headrace.Loader`."""
    return f"headrace.{str(loader.facts.get('dataset', '')).rpartition('.')[2]}"
