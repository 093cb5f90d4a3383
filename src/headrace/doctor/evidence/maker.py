"""A process's side as a maker of batches: a worker's, or the trainer's own where it has no workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.doctor.session import evidence_records
from headrace.doctor.session.model import Line, LookedSample, LookedStage, Maker, SlowSample

Taker = Callable[[Any], None]
UNNAMED = "other:unnamed"
"""A stage whose name was lost with the line that held it."""


class MakerSide:
    """Gathers the records of docs/doctor/evidence.md, A process that makes batches."""

    def __init__(self) -> None:
        self.maker = Maker(pid=0, host="", trainer=None, worker=None)
        self._names: dict[int, str] = {}
        self._stages: dict[str, int] = {}
        self._lines: dict[str, int] = {}

    @property
    def is_worker(self) -> bool:
        return self.maker.begun is not None

    @property
    def is_one(self) -> bool:
        return self.is_worker or bool(self.maker.batches.index)

    def takers(self, names: dict[int, str]) -> dict[type[evidence_records.Record], Taker]:
        """What takes each kind of record; `names` fills as the file is read."""
        self._names = names
        return {
            evidence_records.Worker: self._worker,
            evidence_records.Batch: self._batch,
            evidence_records.Slow: self._slow,
            evidence_records.SampleLook: self._look,
            evidence_records.Lines: self._count_lines,
            evidence_records.Probe: self._probe,
        }

    def finished(self, pid: int, host: str) -> Maker:
        """The maker, with its lines summed."""
        maker = self.maker
        maker.pid, maker.host = pid, host
        maker.trainer = maker.facts.get("parent") if self.is_worker else pid
        heaviest = sorted(self._lines.items(), key=lambda item: -item[1])
        maker.lines = [Line(place, us) for place, us in heaviest]
        if not any(maker.batches.beside):
            maker.batches.beside = []
        if all(worked is None for worked in maker.batches.worked):
            maker.batches.worked = []
        return maker

    def _worker(self, record: evidence_records.Worker) -> None:
        maker, facts = self.maker, record.facts
        maker.facts = facts
        maker.begun = record.t
        maker.worker = facts.get("id")
        maker.started = facts.get("started_us")

    def _batch(self, record: evidence_records.Batch) -> None:
        batches = self.maker.batches
        batches.epoch.append(record.epoch)
        batches.index.append(record.index)
        batches.start.append(record.t)
        batches.fetched.append(record.fetched_t)
        batches.sent.append(record.sent_t)
        batches.serialise.append(record.serialise)
        batches.samples.append(record.samples)
        batches.stages.append(self._table(record.stages))
        batches.beside.append(self._table(record.beside))
        batches.cpu.append(record.cpu)
        batches.delay.append(record.delay)
        batches.worked.append(record.worked)

    def _slow(self, record: evidence_records.Slow) -> None:
        stages = [(self._stage(name), wall) for name, wall in record.stages]
        self.maker.slow.append(SlowSample(record.key, record.epoch, record.index, record.wall, stages))

    def _look(self, record: evidence_records.SampleLook) -> None:
        stages = [LookedStage(self._stage(name), bool(drew), _known(same)) for name, drew, same in record.stages]
        drew, same = bool(record.drew), _known(record.same)
        self.maker.looks.append(LookedSample(record.epoch, record.index, stages, drew, same, record.takes))

    def _table(self, rows: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
        return [(self._stage(name), calls, wall, cpu) for name, calls, wall, cpu in rows]

    def _stage(self, name: int) -> int:
        """Into `Maker.stages`, which holds each text once."""
        stage = self._names.get(name, UNNAMED)
        if stage not in self._stages:
            self._stages[stage] = len(self.maker.stages)
            self.maker.stages.append(stage)
        return self._stages[stage]

    def _count_lines(self, record: evidence_records.Lines) -> None:
        for name, us in record.counts:
            place = self._names.get(name)
            if place is not None:
                self._lines[place] = self._lines.get(place, 0) + us

    def _probe(self, record: evidence_records.Probe) -> None:
        self.maker.probe = record.us


def _known(flag: int | None) -> bool | None:
    return None if flag is None else bool(flag)
