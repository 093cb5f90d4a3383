"""Loaders of Headrace's own: the stage figures that they record."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from headrace.doctor.measure.diagnosis import LoaderProduction, StagePart
from headrace.doctor.measure.steps import MeasuredTraining, whole_fact
from headrace.doctor.quantities import counted, percent
from headrace.doctor.session.model import LoaderFacts, LoaderFeed, Trainer

CATEGORIES = {
    "read": "read",
    "probe": "scan",
    "decode": "decode",
    "resample": "transform",
    "map": "map",
    "text": "tokenise",
    "python": "python",
}
"""By stage of a Loader, the category of docs/doctor/stages.md that it counts as."""
CORE = ("read", "probe", "decode", "resample")
MAP, TEXT, PYTHON, CONSUMER = "map", "text", "python", "consumer"
SUMMED = ("batches", "samples", "wall_s", "idle_s", "python_s")
BUSY = 1 / 3
"""Share of their time that a Loader's threads work, below which they are not what limits: as `Stats.limit` has it."""
ALWAYS = 0.5
"""The same of workers of `map=`, and of a tokenizer."""


@dataclass
class FeedSums:
    """What a loader did in all passes together, as far as it was looked at."""

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

    @property
    def core_share(self) -> float:
        """Share of its threads' time in which they work."""
        busy_s = sum(self.busy_s(name) for name in CORE)
        return busy_s / (busy_s + self.figures["idle_s"]) if busy_s > 0 else 0.0

    def busy_s(self, name: str) -> float:
        return self.stages.get(name, (0.0, 0.0))[1]

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
        if self.core_share < BUSY:
            return PYTHON
        return max(CORE, key=self.busy_s)


SOURCE = "source"
"""Category of what is no loader at all: a function, or an iterator, that the loop calls for a batch."""


def is_source(loader: LoaderFacts | None) -> bool:
    return loader is not None and "source" in loader.facts


def threads_of(loader: LoaderFacts | None) -> int:
    """Count the threads that make a loader's batches in the trainer itself; 0 for torch's DataLoader."""
    return 0 if loader is None else whole_fact(loader.facts, "threads") or 0


def feed_sums(training: MeasuredTraining) -> dict[int, FeedSums]:
    """Sum up what each loader did, by its number."""
    loaders = {one.number: one.loader for one in training.trainer.passes}
    sums: dict[int, FeedSums] = {}
    for number, feeds in _by_pass(training.trainer).items():
        within = [one for one in feeds if training.is_measured(one.time)]
        first, last = (within[0], within[-1]) if len(within) > 1 else (None, feeds[-1])
        if number in loaders and feeds[-1].time < training.until:
            sums.setdefault(loaders[number], FeedSums()).add(first, last)
    return sums


def feed_makings(training: MeasuredTraining) -> Iterator[LoaderProduction]:
    """Tell how Loaders made their batches, by what they say of themselves."""
    trainer = training.trainer
    loaders = {loader.number: loader for loader in trainer.loaders}
    for number, sums in feed_sums(training).items():
        batches, samples, wall_s = (sums.figures[name] for name in ("batches", "samples", "wall_s"))
        if number not in loaders or batches < 1 or wall_s <= 0:
            continue
        passes = [one for one in trainer.passes if one.loader == number]
        busy_s = sum(sums.busy_s(name) for name in CORE)
        yield LoaderProduction(
            trainer=trainer.pid,
            loader=number,
            workers=sums.threads,
            batches=round(batches),
            busy=min(sums.core_share, 1.0),
            cores=(busy_s + sums.figures["python_s"] + (sums.busy_s(MAP) if sums.map_workers else 0.0)) / wall_s,
            batch_us=busy_s / batches * 1e6,
            stages=_stages(sums, samples or batches, batches, name_of(loaders[number])),
            lines=[],
            slow=[],
            start_up_us=fmean(one.ready - one.start for one in passes) if passes else None,
            first_batch_us=None,
            passes=len(passes),
            respawned=False,
            threads=True,
        )


def shares_of_feeds(training: MeasuredTraining) -> dict[int, dict[str, float]]:
    """Share out a wait for each Loader among the stages of whatever limits it."""
    names = {loader.number: name_of(loader) for loader in training.trainer.loaders}
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


def name_of(loader: LoaderFacts) -> str:
    """Return `headrace.Loader`."""
    return f"headrace.{str(loader.facts.get('dataset', '')).rpartition('.')[2]}"


def keeps_up(training: MeasuredTraining, making: LoaderProduction) -> str:
    """Say: `headrace.Loader keeps up: its 2 threads work 40 % of the time`."""
    loader = next(one for one in training.trainer.loaders if one.number == making.loader)
    verb = "works" if making.workers == 1 else "work"
    return (
        f"{name_of(loader)} keeps up: its {counted(making.workers, 'thread')} {verb} {percent(making.busy)} of the time"
    )


def how_busy(training: MeasuredTraining, making: LoaderProduction) -> str:
    """Say: `headrace.Loader's 2 threads work 97 % of the time, most of it decode`."""
    loader = next(one for one in training.trainer.loaders if one.number == making.loader)
    sums = feed_sums(training).get(making.loader)
    threads = f"{name_of(loader)}'s {counted(making.workers, 'thread')}"
    verb = "works" if making.workers == 1 else "work"
    if sums is None:
        return f"{threads} {verb} {percent(making.busy)} of the time{_most(making.stages)}"
    if sums.limit == MAP:
        return f"{name_of(loader)} waits for map= in {counted(sums.map_workers, 'map worker')}"
    if sums.limit == TEXT:
        return f"{name_of(loader)} waits for the tokenizer"
    if sums.limit == PYTHON:
        return f"{threads} {verb} only {percent(making.busy)} of the time: Python holds {name_of(loader)} up"
    return f"{threads} {verb} {percent(making.busy)} of the time{_most(making.stages)}"


def what_to_change(training: MeasuredTraining, making: LoaderProduction, cores: float | None) -> str:
    """Advise on a loader of Headrace's that training waits for."""
    loader = next(one for one in training.trainer.loaders if one.number == making.loader)
    sums = feed_sums(training).get(making.loader)
    more = _more_threads(making, cores)
    if sums is None:
        return (
            f"Look at num_workers={more}: there are cores left."
            if more
            else "Look at the stages of its threads: only less work a sample, or more cores, makes it faster."
        )
    argument = {
        MAP: f"Look at map_workers (now {sums.map_workers}), or at augmentations that the core does itself.",
        TEXT: "Look at a pack of tokens, or at cache=: the same text is tokenised in every epoch.",
        PYTHON: "Look at map_workers= for what map= and batch_map= do in Python, and at what else holds the GIL.",
        "read": "Look at cache=, or at where the files lie: headrace stage copies them to a faster disk.",
        "probe": "Look at headrace pack: the sizes of images are then known without opening each.",
    }
    if sums.limit in argument:
        return argument[sums.limit]
    if more:
        return f"Look at threads={more} (now {making.workers}): there are cores left for them."
    return (
        f"Look at cache=, a smaller size of the files, or headrace pack: {name_of(loader)} has a thread for each core."
    )


def _more_threads(making: LoaderProduction, cores: float | None) -> int | None:
    """Return as many as there are cores, where it has fewer."""
    return None if cores is None or making.workers >= int(cores) else int(cores)


def _most(stages: Iterable[StagePart]) -> str:
    heaviest = max(stages, key=lambda part: part.share, default=None)
    return "" if heaviest is None else f", {percent(heaviest.share)} of it {heaviest.category}"


def _by_pass(trainer: Trainer) -> dict[int, list[LoaderFeed]]:
    feeds: dict[int, list[LoaderFeed]] = {}
    for one in trainer.feeds:
        feeds.setdefault(one.pass_, []).append(one)
    return feeds


def _stages(sums: FeedSums, samples: float, batches: float, name: str) -> list[StagePart]:
    """List the heaviest first; the shares sum to 1."""
    rows: dict[str, tuple[float, float]] = {**sums.stages, PYTHON: (batches, sums.figures["python_s"])}
    whole = sum(busy_s for _, busy_s in rows.values())
    parts = [_part(stage, items, busy_s, whole, samples, batches, name) for stage, (items, busy_s) in rows.items()]
    return sorted((part for part in parts if part.share > 0), key=lambda part: -part.share)


def _part(stage: str, items: float, busy_s: float, whole: float, samples: float, batches: float, name: str) -> Any:
    return StagePart(
        category=CATEGORIES.get(stage, stage),
        label=name,
        share=busy_s / whole if whole > 0 else 0.0,
        wall_us=busy_s / samples * 1e6,
        cpu_us=None,
        calls=items / batches,
    )
