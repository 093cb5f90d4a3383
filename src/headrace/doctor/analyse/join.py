"""Finds, for a batch that was received, the record of its making."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headrace.doctor.session.model import LookedSample, Maker, Pass, Session, Trainer


class Made(NamedTuple):
    """One row of a maker's batches."""

    maker: Maker
    row: int


class LookedStages(NamedTuple):
    """One of a maker's samples that was looked at closely."""

    maker: Maker
    sample: LookedSample

    def label(self, place: int) -> str:
        """`category:label` of one of its stages."""
        return self.maker.stages[self.sample.stages[place].stage]


class Join:
    """The pass says which workers served it and which of their epochs it was; epoch and index name the batch.

    Indices go to the workers in turn, unless one has run out (iterable datasets) or order does not matter, so the
    worker's id cannot be computed.
    """

    def __init__(self, session: Session) -> None:
        self._rows = {id(maker): _rows(maker) for maker in session.makers}
        self._by_pid: dict[tuple[str, int], list[Maker]] = {}
        for maker in sorted(session.makers, key=_start):
            self._by_pid.setdefault((maker.host, maker.pid), []).append(maker)
        self._thinned = {(process.host, process.pid) for process in session.processes if process.cut}
        self._thinned |= {(trainer.host, trainer.pid) for trainer in session.trainers if trainer.rests}

    def finder(self, trainer: Trainer, one: Pass) -> Finder:
        makers = [self._maker(trainer.host, pid, one) for pid in one.workers]
        rows = [{} if maker is None else self._rows[id(maker)].get(one.epoch, {}) for maker in makers]
        return Finder(makers, rows, one.epoch, any(self.is_thinned(maker) for maker in makers if maker is not None))

    def is_thinned(self, maker: Maker) -> bool:
        """Whether some of its batches were not written, or are lost."""
        return (maker.host, maker.pid) in self._thinned

    def _maker(self, host: str, pid: int, one: Pass) -> Maker | None:
        """None for a worker that left no evidence. A pid that the system gave again belongs to the newest process that
        had been started by then."""
        makers = self._by_pid.get((host, pid), [])
        begun = [maker for maker in makers if _start(maker) <= one.ready]
        return next(reversed(begun), makers[0] if makers else None)


class Finder:
    """Finds the batches of one pass. `is_thinned`: some of its makers left a sample of their batches only."""

    def __init__(self, makers: list[Maker | None], rows: list[dict[int, int]], epoch: int, is_thinned: bool) -> None:
        self.makers = makers
        self.epoch = epoch
        self.is_thinned = is_thinned
        self._rows = rows

    def batch(self, index: int) -> Made | None:
        """Asks the worker whose turn it is, then the others."""
        count = len(self.makers)
        for offset in range(count):
            turn = (index + offset) % count
            maker, row = self.makers[turn], self._rows[turn].get(index)
            if maker is not None and row is not None:
                return Made(maker, row)
        return None

    def batches(self) -> Iterator[Made]:
        """All that the pass's makers made for it, by worker."""
        for maker, rows in zip(self.makers, self._rows, strict=True):
            if maker is not None:
                yield from (Made(maker, row) for row in rows.values())

    def looks(self) -> Iterator[LookedStages]:
        """Samples of the pass that were looked at closely."""
        for maker in self.makers:
            if maker is not None:
                yield from (LookedStages(maker, one) for one in maker.looks if one.epoch == self.epoch)


def _rows(maker: Maker) -> dict[int, dict[int, int]]:
    """Rows by epoch and index."""
    rows: dict[int, dict[int, int]] = {}
    for row, (epoch, index) in enumerate(zip(maker.batches.epoch, maker.batches.index, strict=True)):
        rows.setdefault(epoch, {})[index] = row
    return rows


def _start(maker: Maker) -> int:
    """When its process was started: within the iter() that wanted it, while its own first words may come later."""
    return next((time for time in (maker.started, maker.begun) if time is not None), 0)
