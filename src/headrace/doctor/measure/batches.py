"""Origin of each batch, and the cost of its production by stage."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headrace.doctor.measure.diagnosis import LinePart, StagePart
from headrace.doctor.session.model import Session
from headrace.doctor.session.producers import BatchProducer
from headrace.doctor.session.trainers import Trainer, TrainerPass

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
    """Rows by batch index, per producer."""
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
        """Sum up batches by stage.

        A batch without a sample count has `batch_size` items, or one item if that is None. Each item counts as
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
    """Return calls, wall and CPU of one batch by stage.

    The time outside stages is `other:rest`. The time to `serialise` is extra: another thread of the worker does it
    while the next batch begins.
    """
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
    """Return the production time of a batch."""
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
