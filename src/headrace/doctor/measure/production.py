"""Production of batches in each loader: by which stages, how busily, on how many cores.

A Loader of Headrace's own counts by stage what its threads do, from the start of each pass on (`stats()`). Its figures
here are of the measured steps, as far as two of its counts lie in them. A ThreadDataLoader records its batches one by
one, as a DataLoader's workers do.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from ..session.model import LoaderFacts, LoaderFeed, Trainer, TrainerPass
from .batches import Finder, Join, MadeBatch, costs, line_parts, made_us, slow_samples, stage_parts
from .diagnosis import LoaderProduction, StagePart
from .steps import MeasuredTraining, TimeSpan, is_here, is_source, pass_of, threads_of, whole_fact

CATEGORIES = {
    "read": "read",
    "probe": "scan",
    "decode": "decode",
    "resample": "transform",
    "map": "map",
    "text": "tokenise",
    "python": "python",
}
"""Category of docs/doctor/stages.md for each stage of a Loader."""
CORE = ("read", "probe", "decode", "resample")
MAP, TEXT, PYTHON = "map", "text", "python"
SOURCE = "source"
"""Category of what is no loader at all: a function, or an iterator, that the loop calls for a batch."""
SUMMED = ("batches", "samples", "wall_s", "idle_s", "python_s")
BUSY = 1 / 3
"""Share of their time that a Loader's threads work, below which they are not what limits: as `Stats.limit` has it."""
ALWAYS = 0.5
"""The same of workers of `map=`, and of a tokenizer."""


def makings(training: MeasuredTraining, join: Join) -> list[LoaderProduction]:
    """Return the loaders that made batches in measured steps: those that steps waited for first, then the busiest."""
    trainer = training.trainer
    ends: dict[int, int] = {}  # when the last batch of each pass was received
    for gets in (trainer.gets, trainer.fetches):
        for number, start, duration in zip(gets.pass_, gets.start, gets.duration, strict=True):
            ends[number] = max(ends.get(number, 0), start + duration)
    found = [_production(training, join, loader, ends) for loader in trainer.loaders]
    fed = fed_loaders(training)
    made = [*(one for one in found if one is not None), *_feed_productions(training)]
    return sorted(made, key=lambda one: (one.loader not in fed, -one.batches * one.batch_us))


def fed_loaders(training: MeasuredTraining) -> set[int]:
    """Return the loaders whose batches measured steps waited for, and not only an evaluation."""
    passes, numbers = pass_of(training.trainer), training.trainer.gets.pass_
    return {one.loader for row in training.gets if (one := passes.get(numbers[row])) is not None}


def _production(
    training: MeasuredTraining, join: Join, loader: LoaderFacts, ends: dict[int, int]
) -> LoaderProduction | None:
    trainer = training.trainer
    passes = [one for one in trainer.passes if one.loader == loader.number and one.start < training.until]
    finders = {one.number: join.finder(trainer, one) for one in passes}
    stretches = {one.number: stretch for one in passes if (stretch := _stretch(training, one, ends)) is not None}
    made = {number: _made_in(stretch, finders[number]) for number, stretch in stretches.items()}
    all_made = [one for of_pass in made.values() for one in of_pass]
    if not all_made:
        return None
    makers = list({id(one.maker): one.maker for one in all_made}.values())
    size = whole_fact(loader.facts, "batch_size")
    sums = costs(all_made, size)
    batch_us = fmean(made_us(maker, row) for maker, row in all_made)
    time = sum(stretch.end - stretch.start for stretch in stretches.values())
    threads = threads_of(loader)
    workers = threads or max(len(one.workers) for one in passes)
    in_all = sum(_in_all(of_pass, finders[number]) for number, of_pass in made.items())
    return LoaderProduction(
        trainer=trainer.pid,
        loader=loader.number,
        workers=0 if is_here(trainer, passes[-1]) and not threads else workers,
        batches=len(all_made),
        busy=min(1.0, in_all * batch_us / (time * workers)),
        cores=in_all * sums.cpu / sums.batches / time,
        batch_us=batch_us,
        stages=stage_parts(sums),
        lines=line_parts(makers),
        slow=slow_samples(makers, all_made, size),
        start_up_us=fmean(one.ready - one.start for one in passes),
        first_batch_us=_first_batch_us(trainer, passes),
        passes=len(passes),
        respawned=not is_here(trainer, passes[0]) and any(one.workers != passes[0].workers for one in passes),
        threads=threads > 0,
    )


def _stretch(training: MeasuredTraining, one: TrainerPass, ends: dict[int, int]) -> TimeSpan | None:
    """Return when a pass's makers had work to do within the measured steps: from its start to its last batch."""
    if one.number not in ends or not training.steps:
        return None
    start, end = max(one.start, training.steps[0].start), min(ends[one.number], training.steps[-1].end)
    return TimeSpan("pass", start, end) if end > start else None


def _made_in(stretch: TimeSpan, finder: Finder) -> list[MadeBatch]:
    return [made for made in finder.batches() if stretch.start <= made.maker.batches.fetched[made.row] <= stretch.end]


def _in_all(made: Sequence[MadeBatch], finder: Finder) -> int:
    """Count the batches that were made, those that were thinned out included: indices follow one another."""
    if not finder.is_thinned or not made:
        return len(made)
    indices = [maker.batches.index[row] for maker, row in made]
    return max(indices) - min(indices) + 1


def _first_batch_us(trainer: Trainer, passes: Iterable[TrainerPass]) -> float | None:
    """Return the mean duration of the next() that gave a pass's first batch."""
    numbers = {one.number for one in passes}
    first = [
        duration
        for gets in (trainer.gets, trainer.fetches)
        for number, index, duration in zip(gets.pass_, gets.index, gets.duration, strict=True)
        if index == 0 and number in numbers
    ]
    return fmean(first) if first else None


@dataclass
class FeedSums:
    """Counts of a Loader in all passes together, as far as it was looked at."""

    figures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0.0))
    stages: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Items and busy seconds."""
    threads: int = 0
    map_workers: int = 0

    def add(self, first: LoaderFeed | None, last: LoaderFeed) -> None:
        """Add what came between two counts of one pass; all of it up to `last` without a first."""
        before = {} if first is None else first.facts
        for name in SUMMED:
            self.figures[name] += (last.facts.get(name) or 0.0) - (before.get(name) or 0.0)
        for name, (items, busy_s) in last.facts.get("stages", {}).items():
            old = before.get("stages", {}).get(name, (0, 0.0))
            has = self.stages.get(name, (0.0, 0.0))
            self.stages[name] = has[0] + items - old[0], has[1] + busy_s - old[1]
        self.threads = whole_fact(last.facts, "threads") or self.threads
        self.map_workers = whole_fact(last.facts, "map_workers") or self.map_workers

    def busy_s(self, name: str) -> float:
        return self.stages.get(name, (0.0, 0.0))[1]

    @property
    def core_s(self) -> float:
        """Busy seconds of the Loader's threads."""
        return sum(self.busy_s(name) for name in CORE)

    @property
    def core_share(self) -> float:
        """Share of its threads' time in which they work."""
        return self.core_s / (self.core_s + self.figures["idle_s"]) if self.core_s > 0 else 0.0

    @property
    def limit(self) -> str:
        """Name the stage that limits while the consumer waits, as headrace's `Stats.limit` finds it."""
        wall_s = self.figures["wall_s"] or 1.0
        shares = {TEXT: self.busy_s(TEXT) / wall_s, MAP: self.busy_s(MAP) / (wall_s * max(self.map_workers, 1))}
        if not self.map_workers:
            shares.pop(MAP)
        for name, share in sorted(shares.items(), key=lambda one: -one[1]):
            if share > max(self.core_share, ALWAYS):
                return name
        return PYTHON if self.core_share < BUSY else max(CORE, key=self.busy_s)


def feed_sums(training: MeasuredTraining) -> dict[int, FeedSums]:
    """Sum up what each Loader did, by its number."""
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
    """Yield how Loaders made their batches, by their own counts."""
    trainer = training.trainer
    loaders = {loader.number: loader for loader in trainer.loaders}
    for number, sums in feed_sums(training).items():
        batches, samples, wall_s = (sums.figures[name] for name in ("batches", "samples", "wall_s"))
        if number not in loaders or batches < 1 or wall_s <= 0:
            continue
        passes = [one for one in trainer.passes if one.loader == number]
        mapped_s = sums.busy_s(MAP) if sums.map_workers else 0.0
        yield LoaderProduction(
            trainer=trainer.pid,
            loader=number,
            workers=sums.threads,
            batches=round(batches),
            busy=min(sums.core_share, 1.0),
            cores=(sums.core_s + sums.figures["python_s"] + mapped_s) / wall_s,
            batch_us=sums.core_s / batches * 1e6,
            stages=_feed_stages(sums, samples or batches, batches, own_name(loaders[number])),
            lines=[],
            slow=[],
            start_up_us=fmean(one.ready - one.start for one in passes) if passes else None,
            first_batch_us=None,
            passes=len(passes),
            respawned=False,
            threads=True,
        )


def _feed_stages(sums: FeedSums, samples: float, batches: float, name: str) -> list[StagePart]:
    """Return the stages, heaviest first; their shares sum to 1."""
    rows: dict[str, tuple[float, float]] = {**sums.stages, PYTHON: (batches, sums.figures["python_s"])}
    whole = sum(busy_s for _, busy_s in rows.values())
    parts = [
        StagePart(
            category=CATEGORIES.get(stage, stage),
            label=name,
            share=busy_s / whole if whole > 0 else 0.0,
            wall_us=busy_s / samples * 1e6,
            cpu_us=None,
            calls=items / batches,
        )
        for stage, (items, busy_s) in rows.items()
    ]
    return sorted((part for part in parts if part.share > 0), key=lambda part: -part.share)


def shares_of_feeds(training: MeasuredTraining) -> dict[int, dict[str, float]]:
    """Share out a wait for each Loader among the stages of whatever limits it."""
    names = {loader.number: own_name(loader) for loader in training.trainer.loaders}
    found: dict[int, dict[str, float]] = {}
    for number, sums in feed_sums(training).items():
        limit, name = sums.limit, names.get(number, "")
        busy = {stage: sums.busy_s(stage) for stage in CORE} if limit in CORE else {limit: 1.0}
        whole = sum(busy.values())
        found[number] = {f"{CATEGORIES[stage]}:{name}": us / whole for stage, us in busy.items() if us > 0}
    for loader in training.trainer.loaders:
        if is_source(loader):
            place = f"{os.path.basename(str(loader.facts.get('file')))}:{loader.facts.get('line')}"
            found[loader.number] = {f"{SOURCE}:{loader.facts['source']}, {place}": 1.0}
    return found


def own_name(loader: LoaderFacts) -> str:
    """Return `headrace.Loader`."""
    return f"headrace.{str(loader.facts.get('dataset', '')).rpartition('.')[2]}"
