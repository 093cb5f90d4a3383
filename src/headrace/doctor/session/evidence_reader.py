"""Read the probes' evidence files and merge many processes into one session.

Evidence may be damaged: the reader counts and skips such lines.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec.structs import astuple

from headrace.doctor.probe import ProbeSettings, without_credentials
from headrace.doctor.session import model, producers, trainers
from headrace.doctor.session.declaring import KINDS, RecordKind, Table, kind_of
from headrace.doctor.session.evidence_schema import decode_record
from headrace.doctor.session.failed_replay import ended_in, why_failed
from headrace.doctor.session.merged_reads import NamedRecord, merge_opened, merge_remote
from headrace.doctor.session.trainers import LOAD, REPLAY

UNNAMED = "other:unnamed"
"""Placeholder for a stage name that was lost with its line."""
Row = dict[str, Any]


@dataclass
class EvidenceLines:
    """Readable records of one evidence file, in the file's order."""

    records: list[Any] = field(default_factory=list)
    bytes: int = 0
    damaged: int = 0
    """Number of incomplete records, left by a killed process or a full disk."""


def read_evidence_lines(path: Path) -> EvidenceLines:
    """Read one evidence file, in whatever state its process left it."""
    data = path.read_bytes()
    whole, _, cut = data.rpartition(b"\n")
    lines = EvidenceLines(bytes=len(data), damaged=1 if cut else 0)
    for text in whole.splitlines():
        try:
            lines.records.append(decode_record(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            lines.damaged += 1
    return lines


def _known(flag: int | None) -> bool | None:
    return None if flag is None else bool(flag)


class ProcessEvidence:
    """Evidence file of one process: its life, and its work as a trainer and as a producer of batches.

    Records about a step may precede or follow the step's own record, which is missing if the step never completed.
    """

    def __init__(self, first: Any, lines: EvidenceLines, most_bytes: int) -> None:
        """Process the records. A file near `most_bytes`, its size limit, was cut."""
        facts = first.facts
        pid, parent, host = facts["pid"], facts.get("parent"), facts.get("host")
        self.process = model.ProbedProcess(
            pid=pid,
            parent=parent if isinstance(parent, int) else 0,
            host=host if isinstance(host, str) else "",
            role="other",
            start=first.time,
            end=None,
            ended=None,
            facts={"process": facts},
            cut=lines.damaged > 0 or lines.bytes * 4 >= most_bytes * 3,
            evidence_bytes=lines.bytes,
        )
        self.trainer = trainers.Trainer(pid, self.process.host, rank=0)
        self.producer = producers.BatchProducer(pid, self.process.host, trainer=pid, worker=None)
        self.opened: list[NamedRecord] = []
        self.remote: list[NamedRecord] = []
        self.notes: list[model.SessionNote] = []
        self._names: dict[int, str] = {}
        self._shapes: dict[str, int] = {}
        self._stages: dict[str, int] = {}
        self._device: dict[int, list[tuple[str, float]]] = {}
        self._ready: dict[int, int] = {}
        self._lines: Counter[str] = Counter()
        self._loop_lines: Counter[str] = Counter()
        owners = {"every": self.process, "trainer": self.trainer, "maker": self.producer}
        takes = {kind.line: self._taker(kind, owners[kind.process]) for kind in KINDS.values()}
        for record in lines.records:
            takes[type(record)](record)
        self._finish()

    @classmethod
    def of(cls, lines: EvidenceLines, most_bytes: int) -> ProcessEvidence | None:
        """Return the evidence of one file; None if the first line, which identifies the process, is missing."""
        first = next((record for record in lines.records if kind_of(record) == "process"), None)
        return None if first is None or not isinstance(first.facts.get("pid"), int) else cls(first, lines, most_bytes)

    @property
    def is_producer(self) -> bool:
        return self.process.role == "worker" or bool(self.producer.batches.index)

    def _finish(self) -> None:
        """Set the values that depend on all records."""
        process, trainer, producer = self.process, self.trainer, self.producer
        ranks = (process.facts.get(kind, {}).get("rank") for kind in ("facts", "torch", "process"))
        trainer.rank = next((rank for rank in ranks if isinstance(rank, int)), 0)
        trainer.shapes, producer.stages = list(self._shapes), list(self._stages)
        trainer.steps.device = [self._device.get(number) for number in trainer.steps.number]
        trainer.steps.ready = [self._ready.get(number) for number in trainer.steps.number]
        if producer.begun is not None:
            process.role = "worker"
            producer.trainer = producer.facts.get("parent")
        elif trainer.steps.number or trainer.passes or trainer.loaders:
            process.role = "trainer"
        trainer.lines = [producers.SourceLine(place, us) for place, us in self._loop_lines.most_common()]
        producer.lines = [producers.SourceLine(place, us) for place, us in self._lines.most_common()]
        if not any(producer.batches.beside):
            producer.batches.beside = []
        if all(worked is None for worked in producer.batches.worked):
            producer.batches.worked = []

    def _taker(self, kind: RecordKind, owner: Any) -> Callable[[Any], None]:
        """Return the handler for a kind of record: its own method, an appender of rows, or a no-op."""
        own = getattr(self, f"_take_{kind.name}", None)
        if own is not None:
            return cast("Callable[[Any], None]", own)
        place = next((getattr(owner, one.name) for one in fields(owner) if one.metadata["rows_of"] == kind.name), None)
        if place is None:
            return lambda record: None
        change = getattr(self, f"_change_{kind.name}", lambda row: None)
        names = [one.name for one in kind.fields]
        otherwise = [one for one in kind.fields if one.is_written_otherwise]
        appends = [getattr(place, name).append for name in names] if isinstance(place, Table) else []

        def take(record: Any) -> None:
            row = dict(zip(names, astuple(record)))  # noqa: B905  # of one length, and this is the hottest loop
            for one in otherwise:
                row[one.name] = one.value(row[one.name], self._names)
            change(row)
            if appends:
                for append, value in zip(appends, row.values()):  # noqa: B905
                    append(value)
            else:
                place.append(kind.made(**row))

        return take

    # Values with different forms in a row and its record

    def _change_get(self, row: Row) -> None:
        if row["shape"] is not None:
            row["shape"] = self._shapes.setdefault(self._names.get(row["shape"], "?"), len(self._shapes))

    _change_fetch = _change_drained = _change_get

    def _change_step(self, row: Row) -> None:
        row["spans"] = [(kind, row["start"] + offset, duration) for kind, offset, duration in row["spans"]]

    def _change_batch(self, row: Row) -> None:
        for name in ("stages", "beside"):
            row[name] = [(self._stage(stage), calls, wall, cpu) for stage, calls, wall, cpu in row[name]]

    def _change_first(self, row: Row) -> None:
        row["files"] = [self._names[name] for name in row["files"] if name in self._names]

    # Records without rows

    def _take_name(self, record: Any) -> None:
        self._names[record.number] = record.text

    def _take_facts(self, record: Any) -> None:
        self.process.facts.setdefault(kind_of(record), {}).update(record.facts)

    _take_torch = _take_facts

    def _take_applied(self, record: Any) -> None:
        applied = self.process.facts.setdefault("applied", {}).setdefault(record.key, {"count": 0, "texts": []})
        applied["count"] = max(applied["count"], record.count)
        if record.text:
            applied["texts"].append(record.text)

    def _take_note(self, record: Any) -> None:
        self.notes.append(model.SessionNote(record.code, record.text, self.process.pid, record.time))

    def _take_error(self, record: Any) -> None:
        self.process.error = record.text
        self.process.ended = "error"

    def _take_stack(self, record: Any) -> None:
        self.process.stacks.append(f"{record.what}: {record.text}")

    def _take_calls(self, record: Any) -> None:
        calls = [[self._names.get(what, "?"), self._names.get(place), *row] for what, place, *row in record.calls]
        told = {"time": record.time, "steps": record.steps, "calls": calls}
        self.process.facts.setdefault("calls", []).append(told)

    def _take_end(self, record: Any) -> None:
        self.process.end = record.time
        if self.process.error is None:
            self.process.ended = record.reason

    def _take_last(self, record: Any) -> None:
        for one in reversed(self.trainer.passes):
            if one.number == record.pass_:
                one.last_start, one.last = record.start, record.duration
                return

    def _take_device(self, record: Any) -> None:
        times = (tenths / 10 for tenths in accumulate(record.gaps))
        self._device[record.number] = list(zip(record.kinds, times, strict=False))

    def _take_ready(self, record: Any) -> None:
        self._ready[record.number] = record.time

    def _take_worker(self, record: Any) -> None:
        producer = self.producer
        producer.facts, producer.begun = record.facts, record.time
        producer.worker, producer.started = record.facts.get("id"), record.facts.get("started_us")

    def _take_lines(self, record: Any) -> None:
        self._lines.update({self._names[name]: us for name, us in record.counts if name in self._names})

    def _take_loop(self, record: Any) -> None:
        self._loop_lines.update({self._names[name]: us for name, us in record.counts if name in self._names})

    def _take_opened(self, record: Any) -> None:
        self.opened.append((record, self._names))

    def _take_remote(self, record: Any) -> None:
        self.remote.append((record, self._names))

    def _take_probe(self, record: Any) -> None:
        self.producer.probe = record.us

    def _stage(self, name: int) -> int:
        """Return a stage's index in `BatchProducer.stages`, which holds each text once."""
        return self._stages.setdefault(self._names.get(name, UNNAMED), len(self._stages))


def read_session(
    folder: Path,
    *,
    outcome: model.CommandOutcome,
    mode: str,
    machines: Sequence[model.Machine] = (),
    unreached: Sequence[model.UnreachedProcess] = (),
    notes: Sequence[model.SessionNote] = (),
) -> model.Session:
    """Merge all evidence files of a session's folder, which has the run's settings in settings.json.

    All files use the session's clock. A note names each file without the first line of its process. The evidence alone
    shows if the doctor ended the run. Credentials are removed from the command and its output, as probes do.
    """
    settings = ProbeSettings.read(str(folder))
    paths = sorted(Path(settings.evidence).glob("*.jsonl"))
    collects = gc.isenabled()
    gc.disable()  # GC would take over half of the time (benchmarks/doctor_evidence.py), and there are no cycles
    try:
        found = [(path, ProcessEvidence.of(read_evidence_lines(path), settings.most_bytes)) for path in paths]
    finally:
        if collects:
            gc.enable()
    whole = sorted((one for _, one in found if one is not None), key=lambda one: one.process.start)
    trainers = sorted((one.trainer for one in whole if one.process.role == "trainer"), key=lambda one: one.rank)
    served = {(trainer.host, pid): trainer.pid for trainer in trainers for one in trainer.passes for pid in one.workers}
    producers = [one.producer for one in whole if one.is_producer]
    for producer in producers:
        producer.trainer = served.get((producer.host, producer.pid), producer.trainer)
    empty = [
        model.SessionNote("empty", f"{path.name}: no process's first line; what it observed is lost")
        for path, one in found
        if one is None
    ]
    told: list[model.SessionNote] = []
    own = [replace(note, text=without_credentials(note.text)) for note in notes]
    outcome = replace(outcome, command=_shown(outcome.command), last_lines=_shown(outcome.last_lines))
    if outcome.why != "interrupted" and any(one.process.ended == "steps" for one in whole):
        outcome = replace(outcome, why="steps")
    elif outcome.why == "failed" and (failed := [one for one in whole if ended_in(one.process)]):
        text = f"The script ended by {why_failed(outcome, [one.process for one in failed])} on repeated batches."
        if any(window.name in (REPLAY, LOAD) for one in failed for window in one.trainer.windows):
            outcome = replace(outcome, why="steps")
            text += " All steps that were asked for had been observed by then."
        told = [model.SessionNote("replay-failed", text, one.process.pid) for one in failed]
    return model.Session(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        mode=mode,
        headrace=str(sys.modules["headrace"].__version__),  # the loaded parent; subpackages do not import it
        warmup=settings.warmup,
        steps=settings.steps,
        outcome=outcome,
        processes=[one.process for one in whole],
        trainers=trainers,
        makers=producers,
        opened=merge_opened(opened for one in whole for opened in one.opened),
        remote=merge_remote(remote for one in whole for remote in one.remote),
        machines=list(machines),
        unreached=[replace(one, command=without_credentials(one.command)) for one in unreached],
        notes=[
            *own,
            *(note for one in whole for note in one.notes),
            *empty,
            *told,
        ],
    )


def _shown(texts: Sequence[str]) -> list[str]:
    """Return texts without credentials. All texts are searched as one, since an option's value may be the next text."""
    between = "\x1f"  # whitespace for a pattern, and in no text
    return without_credentials(between.join(texts)).split(between) if len(texts) else []
