"""Origin of each batch, and the cost of its production: stages, busy share, and cores, by loader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import NamedTuple

import msgspec

from headrace.doctor.measure.diagnosis import LinePart, LoaderProduction, StagePart
from headrace.doctor.measure.steps import MeasuredTraining, is_here, whole_fact
from headrace.doctor.session.model import Session
from headrace.doctor.session.trainers import BatchProducer, LoaderFacts, Trainer, TrainerPass

Figures = tuple[int, int, int | None]
"""Calls, wall and CPU."""
REST = "other:rest"
"""Time of a batch outside all stages."""
SERIALISE = "serialise:to the trainer"
"""Pickling a batch into the pipe, and its tensors into shared memory."""
MOST = 10
"""Maximum number of lines to report."""


class MadeBatch(NamedTuple):
    """One row of a producer's batches."""

    maker: BatchProducer
    row: int


class Join:
    """Join of batches in the trainer with their production.

    A pass names its workers and which of their epochs it is; epoch and index identify a batch. The worker's id cannot
    be computed: indices go to the workers in turn, unless one has run out (iterable datasets) or order does not matter.
    """

    def __init__(self, session: Session) -> None:
        self._rows: dict[int, dict[int, dict[int, int]]] = {}
        for maker in session.makers:
            by_epoch = self._rows[id(maker)] = {}
            for row, (epoch, index) in enumerate(zip(maker.batches.epoch, maker.batches.index, strict=True)):
                by_epoch.setdefault(epoch, {})[index] = row
        self._by_pid = {(maker.host, maker.pid): maker for maker in session.makers}
        self._cut = {(process.host, process.pid) for process in session.processes if process.cut}

    def finder(self, trainer: Trainer, one: TrainerPass) -> Finder:
        makers = [self._by_pid.get((trainer.host, pid)) for pid in one.workers]
        rows = [{} if maker is None else self._rows[id(maker)].get(one.epoch, {}) for maker in makers]
        return Finder(makers, rows, one.epoch, any(self.is_cut(maker) for maker in makers if maker is not None))

    def is_cut(self, maker: BatchProducer) -> bool:
        """Return True if some of its batches are not recorded."""
        return (maker.host, maker.pid) in self._cut


@dataclass(frozen=True)
class Finder:
    """Finder of one pass's batches. `is_cut`: some of its producers' batches are not recorded."""

    makers: list[BatchProducer | None]
    rows: list[dict[int, int]]
    epoch: int
    is_cut: bool

    def batch(self, index: int) -> MadeBatch | None:
        """Return a batch by index, starting the search at the worker next in turn."""
        count = len(self.makers)
        for offset in range(count):
            turn = (index + offset) % count
            maker, row = self.makers[turn], self.rows[turn].get(index)
            if maker is not None and row is not None:
                return MadeBatch(maker, row)
        return None

    def batches(self) -> Iterator[MadeBatch]:
        for maker, rows in zip(self.makers, self.rows, strict=True):
            if maker is not None:
                yield from (MadeBatch(maker, row) for row in rows.values())


@dataclass
class StageSums:
    """Calls, wall and CPU microseconds of one stage; CPU is None if not measured."""

    calls: float = 0
    wall: float = 0
    cpu: float | None = None


@dataclass
class StageCosts:
    """Cost of batches by stage; the wall times sum to their production time."""

    batches: float = 0
    samples: float = 0
    stages: dict[str, StageSums] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Sequence[MadeBatch], batch_size: int | None, item_samples: int = 1) -> StageCosts:
        """Sum up batches by stage. A batch without a sample count has `batch_size` items, or one, of `item_samples`."""
        costs = cls(batches=len(made))
        for maker, row in made:
            costs.samples += (maker.batches.samples[row] or batch_size or 1) * item_samples
            for stage, (calls, wall, cpu) in batch_stages(maker, row).items():
                sums = costs.stages.setdefault(stage, StageSums())
                sums.calls += calls
                sums.wall += wall
                if cpu is not None:
                    sums.cpu = (sums.cpu or 0) + cpu
        return costs

    @property
    def cpu(self) -> float:
        """CPU time of the stages with known CPU time."""
        return sum(sums.cpu or 0 for sums in self.stages.values())

    def parts(self) -> list[StagePart]:
        """Return the stages in descending order; their shares sum to 1."""
        whole = sum(sums.wall for sums in self.stages.values())
        if whole <= 0:
            return []
        parts = []
        for stage, sums in self.stages.items():
            category, _, label = stage.partition(":")
            cpu_us = None if sums.cpu is None else sums.cpu / self.samples
            wall_us, calls = sums.wall / self.samples, sums.calls / self.batches
            parts.append(StagePart(category, label, sums.wall / whole, wall_us, cpu_us, calls))
        return sorted(parts, key=lambda part: -part.share)


def batch_stages(maker: BatchProducer, row: int, *, serialise: bool = True) -> dict[str, Figures]:
    """Return calls, wall and CPU of a batch by stage and `other:rest`. `serialise` may overlap with the next batch."""
    batches = maker.batches
    stages = _named(maker, batches.stages[row])
    rest = made_us(maker, row) - sum(wall for _, wall, _ in stages.values())
    if rest > 0:
        stages[REST] = (1, rest, None)
    pickling = batches.serialise[row]
    if serialise and pickling:
        stages[SERIALISE] = (1, pickling, None)
    return stages


def made_us(maker: BatchProducer, row: int) -> int:
    return maker.batches.fetched[row] - maker.batches.start[row]


def _named(maker: BatchProducer, rows: list[tuple[int, int, int, int]]) -> dict[str, Figures]:
    return {maker.stages[number]: (calls, wall, cpu) for number, calls, wall, cpu in rows}


def line_parts(makers: Sequence[BatchProducer]) -> list[LinePart]:
    """Return lines by their share of the producers' busy time over the whole run, in descending order."""
    shares, _ = line_shares(makers)
    heaviest = sorted(shares.items(), key=lambda item: -item[1])[:MOST]
    return [LinePart(place, share) for place, share in heaviest]


def line_shares(makers: Sequence[BatchProducer]) -> tuple[dict[str, float], int]:
    """Return the share of each sampled line, and the time that all stack samples represent."""
    seen: dict[str, int] = {}
    for maker in makers:
        for line in maker.lines:
            seen[line.place] = seen.get(line.place, 0) + line.us
    sampled_us = sum(seen.values())
    whole = max(sampled_us, sum(busy_us(maker) for maker in makers))
    return {place: us / whole for place, us in seen.items() if us > 0}, sampled_us


def busy_us(maker: BatchProducer) -> int:
    """Return the production time of its recorded batches."""
    return sum(maker.batches.fetched) - sum(maker.batches.start)


TENSOR = re.compile(r"(\w+)\[([\d,]*)\]")
BATCH_DIMS = 4
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
    """Return the rows of a batch; None if its tensors' first dimensions differ, or one tensor may be one sample."""
    dims = [sizes for _, sizes in tensors_of(shape)]
    first = {one[0] if one else 0 for one in dims}
    if len(first) != 1 or first <= {0, 1}:
        return None
    is_batch = max(map(len, dims)) >= BATCH_DIMS or (len(dims) > 1 and not first <= COLOURS)
    return first.pop() if is_batch else None


def with_loaders_as_one(trainer: Trainer) -> Trainer:
    """Merge equal DataLoaders that are used one after the other.

    A script that makes a DataLoader per epoch has one loader, and restarts its workers. A loader whose batches only
    evaluations took is never merged with one for training.
    """
    number_of = _numbers(trainer)
    if all(number == loader for loader, number in number_of.items()):
        return trainer
    return msgspec.structs.replace(
        trainer,
        loaders=[loader for loader in trainer.loaders if number_of[loader.number] == loader.number],
        passes=[msgspec.structs.replace(one, loader=number_of.get(one.loader, one.loader)) for one in trainer.passes],
    )


def _numbers(trainer: Trainer) -> dict[int, int]:
    """Return, by loader, the number of the first of its merged loaders."""
    used: dict[int, tuple[int, int]] = {}  # start of its first and last pass
    for one in trainer.passes:
        first, last = used.get(one.loader, (one.start, one.start))
        used[one.loader] = min(first, one.start), max(last, one.start)
    loader_of = {one.number: one.loader for one in trainer.passes}
    trained = {loader_of.get(number) for number in trainer.gets.pass_}
    evaluated = {loader_of.get(number) for number in trainer.fetches.pass_} - trained
    newest: dict[tuple[bytes, bool], tuple[int, int]] = {}
    """First number of each group of equal loaders, and the last start of a pass in it."""
    numbers = {loader.number: loader.number for loader in trainer.loaders}
    for loader in sorted((one for one in trainer.loaders if one.number in used), key=lambda one: used[one.number][0]):
        first, last = used[loader.number]
        what = msgspec.json.encode(loader.facts, order="sorted"), loader.number in evaluated
        known, until = newest.get(what, (loader.number, first))
        if "dataset" in loader.facts and until < first:
            numbers[loader.number] = known
        newest[what] = (numbers[loader.number], last)
    return numbers
