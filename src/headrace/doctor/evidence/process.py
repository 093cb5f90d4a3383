"""One process's evidence file, put together: its life, and its sides as a trainer and as a maker of batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.doctor.evidence.lines import Lines
from headrace.doctor.evidence.maker import MakerSide
from headrace.doctor.evidence.opened import OpenedSide
from headrace.doctor.session import evidence_records
from headrace.doctor.session.evidence_reader import TrainerSide
from headrace.doctor.session.model import Note, Process


@dataclass
class ProcessEvidence:
    """What one file says. `trainer` and `maker` hold nothing where the process was neither."""

    process: Process
    trainer: TrainerSide
    maker: MakerSide
    opened: OpenedSide = field(default_factory=OpenedSide)
    notes: list[Note] = field(default_factory=list)

    @classmethod
    def of(cls, lines: Lines, most_bytes: int) -> ProcessEvidence | None:
        """None for a file without its first line, which says whose it is. `most_bytes` is the file's bound: one that
        is half full has been thinned."""
        first = next((record for record in lines.records if isinstance(record, evidence_records.Process)), None)
        if first is None or not isinstance(first.facts.get("pid"), int):
            return None
        evidence = cls(_process(first), TrainerSide(), MakerSide())
        evidence.process.evidence_bytes = lines.bytes
        evidence.process.cut = lines.damaged > 0 or lines.bytes * 2 >= most_bytes
        evidence._take(lines.records)
        return evidence

    def _take(self, taken: list[evidence_records.Record]) -> None:
        names: dict[int, str] = {}
        take = self._takers(names)
        for record in taken:
            taker = take.get(type(record))
            if taker is not None:
                taker(record)
        self.process.role = "worker" if self.maker.is_worker else "trainer" if self.trainer.is_one else "other"

    def _takers(self, names: dict[int, str]) -> dict[type[evidence_records.Record], Callable[[Any], None]]:
        return {
            evidence_records.Name: lambda record: names.update({record.number: record.text}),
            evidence_records.Torch: self._facts("torch"),
            evidence_records.Facts: self._facts("facts"),
            evidence_records.Note: self._note,
            evidence_records.Error: self._error,
            evidence_records.Stack: lambda record: self.process.stacks.append(f"{record.what}: {record.text}"),
            evidence_records.End: self._end,
            evidence_records.Applied: self._applied,
            evidence_records.Opened: lambda record: self.opened.take(record, names),
            **self.trainer.takers(names),
            **self.maker.takers(names),
        }

    def _facts(self, kind: str) -> Callable[[evidence_records.Torch | evidence_records.Facts], None]:
        return lambda record: self.process.facts.setdefault(kind, {}).update(record.facts)

    def _applied(self, record: evidence_records.Applied) -> None:
        applied = self.process.facts.setdefault("applied", {}).setdefault(record.key, {"count": 0, "texts": []})
        applied["count"] = max(applied["count"], record.count)
        if record.text:
            applied["texts"].append(record.text)

    def _note(self, record: evidence_records.Note) -> None:
        self.notes.append(Note(record.code, record.text, self.process.pid, record.t))

    def _error(self, record: evidence_records.Error) -> None:
        self.process.error = record.text
        self.process.ended = "error"

    def _end(self, record: evidence_records.End) -> None:
        self.process.end = record.t
        if self.process.error is None:
            self.process.ended = record.reason


def _process(record: evidence_records.Process) -> Process:
    facts = record.facts
    parent, host = facts.get("parent"), facts.get("host")
    return Process(
        pid=facts["pid"],
        parent=parent if isinstance(parent, int) else 0,
        host=host if isinstance(host, str) else "",
        role="other",
        start=record.t,
        end=None,
        ended=None,
        facts={"process": facts},
    )
