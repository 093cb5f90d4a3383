"""Where each batch was made, and what making it cost by stage."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from ..session.model import Session
from ..session.producers import BatchProducer, InspectedSample, ObservedSample, SlowSample
from ..session.trainers import Trainer, TrainerPass
from .diagnosis import LinePart, SlowSampleFinding, StagePart

Figures = tuple[int, int, int | None]
"""Calls, wall and CPU."""
GETITEM = "getitem:rest"
"""The dataset's own code: where it hands samples to threads of its own and waits for them."""
REST = "other:rest"
"""Time of a batch that no stage covers."""
SERIALISE = "serialise:to the trainer"
"""Pickling a batch into the pipe, its tensors into shared memory."""
PLACE = re.compile(r"\('sample', (\d+)\)")
"""Text by which the evidence gives the place in its batch of a sample that has no key."""
LOST = 0.5
"""Share of what a sample took beyond the usual, from which on waiting for a core explains it."""
STORAGE = ("read", "remote", "lookup", "scan")
"""Categories of stages that wait for storage, or for a network."""
LINES_BUSY_US = 1_000_000
"""Time of stack samples from which the share of a line is known well enough to bound others: some 100 of them."""
MOST = 10
"""Slow samples and lines that are worth showing."""


class MadeBatch(NamedTuple):
    """One row of a maker's batches."""

    maker: BatchProducer
    row: int


class LookedStages(NamedTuple):
    """One of a maker's samples that was looked at closely."""

    maker: BatchProducer
    sample: InspectedSample

    def label(self, place: int) -> str:
        """Return `category:label` of one of its stages."""
        return self.maker.stages[self.sample.stages[place].stage]


class Join:
    """The pass says which workers served it and which of their epochs it was; epoch and index name the batch.

    Indices go to the workers in turn, unless one has run out (iterable datasets) or order does not matter, so the
    worker's id cannot be computed.
    """

    def __init__(self, session: Session) -> None:
        self._rows: dict[int, dict[int, dict[int, int]]] = {}
        for maker in session.makers:
            by_epoch = self._rows[id(maker)] = {}
            for row, (epoch, index) in enumerate(zip(maker.batches.epoch, maker.batches.index, strict=True)):
                by_epoch.setdefault(epoch, {})[index] = row
        self._by_pid: dict[tuple[str, int], list[BatchProducer]] = {}
        for maker in sorted(session.makers, key=_start):
            self._by_pid.setdefault((maker.host, maker.pid), []).append(maker)
        self._thinned = {(process.host, process.pid) for process in session.processes if process.cut}
        self._thinned |= {(trainer.host, trainer.pid) for trainer in session.trainers if trainer.rests}

    def finder(self, trainer: Trainer, one: TrainerPass) -> Finder:
        makers = [self._maker(trainer.host, pid, one) for pid in one.workers]
        rows = [{} if maker is None else self._rows[id(maker)].get(one.epoch, {}) for maker in makers]
        return Finder(makers, rows, one.epoch, any(self.is_thinned(maker) for maker in makers if maker is not None))

    def is_thinned(self, maker: BatchProducer) -> bool:
        """Return whether some of its batches were not written, or are lost."""
        return (maker.host, maker.pid) in self._thinned

    def _maker(self, host: str, pid: int, one: TrainerPass) -> BatchProducer | None:
        """Find the maker of a pass by pid; None for a worker that left no evidence.

        A pid that the system gave again belongs to the newest process that had been started by then.
        """
        makers = self._by_pid.get((host, pid), [])
        begun = [maker for maker in makers if _start(maker) <= one.ready]
        return next(reversed(begun), makers[0] if makers else None)


@dataclass(frozen=True)
class Finder:
    """Finds the batches of one pass. `is_thinned`: some of its makers left a sample of their batches only."""

    makers: list[BatchProducer | None]
    rows: list[dict[int, int]]
    """Of each maker, its rows by the index of the batch."""
    epoch: int
    is_thinned: bool

    def batch(self, index: int) -> MadeBatch | None:
        """Find a batch by its index: ask the worker whose turn it is, then the others."""
        count = len(self.makers)
        for offset in range(count):
            turn = (index + offset) % count
            maker, row = self.makers[turn], self.rows[turn].get(index)
            if maker is not None and row is not None:
                return MadeBatch(maker, row)
        return None

    def batches(self) -> Iterator[MadeBatch]:
        """Yield all that the pass's makers made for it, by worker."""
        for maker, rows in zip(self.makers, self.rows, strict=True):
            if maker is not None:
                yield from (MadeBatch(maker, row) for row in rows.values())

    def looks(self) -> Iterator[LookedStages]:
        """Yield the samples of the pass that were looked at closely."""
        for maker in self.makers:
            if maker is not None:
                yield from (LookedStages(maker, one) for one in maker.looks if one.epoch == self.epoch)

    def observed(self) -> tuple[list[ObservedSample], list[ObservedSample]]:
        """Return the inspected samples of the pass, and the batches of which collating was."""
        makers = [maker for maker in self.makers if maker is not None]
        samples = [one for maker in makers for one in maker.samples if one.epoch == self.epoch]
        return samples, [one for maker in makers for one in maker.collated if one.epoch == self.epoch]


def _start(maker: BatchProducer) -> int:
    """Return when its process was started: within the iter() that wanted it, before its own first record."""
    return next((time for time in (maker.started, maker.begun) if time is not None), 0)


def with_threads(stages: dict[str, Figures], beside: dict[str, Figures]) -> dict[str, Figures]:
    """Charge the time in which the dataset's own code did not compute to what threads did meanwhile.

    Each thread's stage takes its part by wall time. The walls still sum to the same; calls and CPU are the threads'
    own.
    """
    calls, wall, cpu = stages.get(GETITEM, (0, 0, 0))
    working = sum(us for _, us, _ in beside.values())
    waited = min(max(wall - (cpu or 0), 0), working)
    if waited == 0:
        return stages
    shared, left = dict(stages), waited
    for stage, (own_calls, us, own_cpu) in beside.items():
        part = waited * us // working
        left -= part
        before = shared.get(stage, (0, 0, 0))
        shared[stage] = (before[0] + own_calls, before[1] + part, (before[2] or 0) + (own_cpu or 0))
    shared[GETITEM] = (calls, wall - waited + left, cpu)
    return shared


@dataclass
class StageSums:
    """Calls, wall and CPU microseconds of one stage; CPU is None where it was not measured."""

    calls: float = 0
    wall: float = 0
    cpu: float | None = None


@dataclass
class StageCosts:
    """Costs of a number of batches, by stage; the walls sum to the time that they took to make."""

    batches: float = 0
    samples: float = 0
    stages: dict[str, StageSums] = field(default_factory=dict)

    @classmethod
    def of(cls, made: Sequence[MadeBatch], batch_size: int | None, item_samples: int = 1) -> StageCosts:
        """Sum up batches by stage.

        A batch that does not tell its items has `batch_size`, and one where that is None, too. Each of them counts as
        `item_samples`.
        """
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
        """CPU time of the stages of which it is known."""
        return sum(sums.cpu or 0 for sums in self.stages.values())

    def parts(self) -> list[StagePart]:
        """Return the stages, heaviest first; their shares sum to 1."""
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
    """Return calls, wall and CPU of one batch by stage.

    What the stages leave of its time is `other:rest`. The time to `serialise` it comes on top: the worker's other
    thread does that while the next batch is begun.
    """
    batches = maker.batches
    stages = _named(maker, batches.stages[row])
    rest = made_us(maker, row) - sum(wall for _, wall, _ in stages.values())
    if batches.beside and batches.beside[row]:
        stages = with_threads(stages, _named(maker, batches.beside[row]))
    if rest > 0:
        stages[REST] = (1, rest, None)
    pickling = batches.serialise[row]
    if serialise and pickling:
        stages[SERIALISE] = (1, pickling, None)
    return stages


def made_us(maker: BatchProducer, row: int) -> int:
    """Return what making a batch took: of all the threads together, where several made it."""
    worked = maker.batches.worked[row] if maker.batches.worked else None
    return maker.batches.fetched[row] - maker.batches.start[row] if worked is None else worked


def _named(maker: BatchProducer, rows: list[tuple[int, int, int, int]]) -> dict[str, Figures]:
    return {maker.stages[number]: (calls, wall, cpu) for number, calls, wall, cpu in rows}


def slow_samples(
    makers: Sequence[BatchProducer], made: Sequence[MadeBatch], batch_size: int | None
) -> list[SlowSampleFinding]:
    """Return the slowest samples of all makers, slowest first.

    Samples are not recorded one by one, so the median sample's time is that of a batch's mean sample. A sample is named
    by its key, wherever and however often it was read. A place in a batch is one in that batch. One that was slow once,
    and may have been so since its worker waited for a core, is no slow sample, and is left out.
    """
    times = [
        (batches.fetched[row] - batches.start[row]) / (batches.samples[row] or batch_size or 1)
        for batches, row in ((maker.batches, row) for maker, row in made)
    ]
    typical = median(times) if times else 0
    if typical <= 0:
        return []
    by_key: dict[str, list[tuple[str, SlowSample, BatchProducer, bool]]] = {}
    for maker in makers:
        rows = {
            (epoch, index): row
            for row, (epoch, index) in enumerate(zip(maker.batches.epoch, maker.batches.index, strict=True))
        }
        for sample in maker.slow:
            place = PLACE.fullmatch(sample.key)
            key = sample.key if place is None else f"{place[1]} of batch {sample.index}"
            which = key if place is None else f"{maker.host} {maker.pid} {sample.epoch} {key}"
            lost_us = _lost_us(maker, rows.get((sample.epoch, sample.index)), sample)
            is_lost = lost_us is None or lost_us >= LOST * max(sample.wall - typical, 1.0)
            by_key.setdefault(which, []).append((key, sample, maker, is_lost))
    slowest = [
        max(seen, key=lambda one: one[1].wall)
        for seen in (_own([one for one in each if one[1].wall > typical]) for each in by_key.values())
        if seen
    ]
    found = []
    for key, sample, maker, _ in sorted(slowest, key=lambda one: -one[1].wall)[:MOST]:
        number, _ = max(sample.stages, key=lambda stage: stage[1], default=(None, 0))
        stage = REST if number is None else maker.stages[number]
        found.append(SlowSampleFinding(key, sample.wall, sample.wall / typical, stage))
    return found


def _own(seen: list[tuple[str, SlowSample, BatchProducer, bool]]) -> list[tuple[str, SlowSample, BatchProducer, bool]]:
    """Return those of one sample's times that are its own: all, where it was slow more than once."""
    return seen if len(seen) > 1 else [one for one in seen if not one[3]]


def _lost_us(maker: BatchProducer, row: int | None, sample: SlowSample) -> int | None:
    """Return how long making a sample may have waited for a core; None where nothing tells.

    The kernel counts how long its batch did. Where it does not, it is what the sample neither computed nor waited for
    storage.
    """
    batches = maker.batches
    delay = batches.delay[row] if row is not None and batches.delay else None
    if delay is not None or sample.cpu is None:
        return delay
    stored = sum(wall for number, wall in sample.stages if maker.stages[number].partition(":")[0] in STORAGE)
    return max(sample.wall - sample.cpu - stored, 0)


def line_parts(makers: Sequence[BatchProducer]) -> list[LinePart]:
    """Return lines by their share of the time that the makers were busy in the whole run, heaviest first."""
    shares, _ = line_shares(makers)
    heaviest = sorted(shares.items(), key=lambda item: -item[1])[:MOST]
    return [LinePart(place, share) for place, share in heaviest]


def line_shares(makers: Sequence[BatchProducer]) -> tuple[dict[str, float], int]:
    """Return the share of each line that was seen, and the time that all stack samples stand for."""
    seen: dict[str, int] = {}
    for maker in makers:
        for line in maker.lines:
            seen[line.place] = seen.get(line.place, 0) + line.us
    sampled_us = sum(seen.values())
    whole = max(sampled_us, sum(busy_us(maker) for maker in makers))
    return {place: us / whole for place, us in seen.items() if us > 0}, sampled_us


def busy_us(maker: BatchProducer) -> int:
    """Return the time that its recorded batches took to make."""
    return sum(maker.batches.fetched) - sum(maker.batches.start)
