"""Read what the probes wrote, and merge the evidence of many processes into one session.

`evidence_schema.py` describes the records. Evidence may be damaged, or of another version: a damaged line is
counted and skipped, a kind that only a newer probe knows is skipped, and so are fields that it has appended.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Union

import msgspec
from msgspec.structs import astuple

from headrace.doctor.probe import ProbeSettings, without_credentials

from . import evidence_schema as schema
from . import model, producers, trainers
from .failed_replay import ended_in, why_failed
from .merged_reads import NamedRecord, merge_opened, merge_remote

UNNAMED = "other:unnamed"
"""Stage whose name was lost with the line that held it."""
_TABLES = {
    "get": "gets",
    "fetch": "fetches",
    "drained": "drained",
    "padding": "padding",
    "replayed": "replays",
    "collective": "collectives",
}
"""Tables of a trainer that each record of a kind is a row of."""
_LISTS: dict[str, tuple[str, str, Callable[..., Any]]] = {
    "pass": ("trainer", "passes", trainers.TrainerPass),
    "window": ("trainer", "windows", trainers.MeasuredWindow),
    "feed": ("trainer", "feeds", trainers.LoaderFeed),
    "digest": ("trainer", "digests", trainers.BatchDigest),
    "loader": ("trainer", "loaders", lambda number, _, facts: trainers.LoaderFacts(number, facts)),
    "rest": ("trainer", "rests", lambda *row: trainers.UnmeasuredSteps(row[0], row[1], row[2], row[3], row[4] / 10)),
    "gc": ("process", "collections", model.GarbageCollections),
}
"""Lists that each record of a kind goes to: whose, which, and what the record's fields make."""

_ANY: Any = Union[tuple(schema.RECORDS.values())]  # noqa: UP007  (a union of a tuple has no other spelling)
decode_record: Callable[[bytes], Any] = msgspec.json.Decoder(_ANY).decode
"""Return the record that a line of evidence is. Raises DecodeError or UnicodeDecodeError."""


@dataclass
class EvidenceLines:
    """Records that could be read of one evidence file, in the file's order."""

    records: list[Any] = field(default_factory=list)
    bytes: int = 0
    damaged: int = 0
    """Lines that are not records: the process was killed, or the disk was full, in the middle of one."""


def read_evidence_lines(path: Path) -> EvidenceLines:
    """Read one evidence file, in whatever state its process left it."""
    data = path.read_bytes()
    whole, _, cut = data.rpartition(b"\n")
    lines = EvidenceLines(bytes=len(data), damaged=1 if cut else 0)
    for text in whole.splitlines():
        try:
            lines.records.append(decode_record(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            lines.damaged += not _is_newer(text)
    return lines


def _is_newer(text: bytes) -> bool:
    """Return whether a line is a record of a kind that only a newer probe knows."""
    try:
        kind = msgspec.json.decode(text)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return False
    return isinstance(kind, str) and kind not in schema.RECORDS


@cache
def _columns(table: type) -> list[str]:
    return [column.name for column in fields(table)]


def _append(table: Any, record: Any, **derived: Any) -> None:
    """Append a record to the columns of the same names; `derived` gives those that differ from what was written."""
    for name in _columns(table.__class__):
        getattr(table, name).append(derived[name] if name in derived else getattr(record, name))


def _known(flag: int | None) -> bool | None:
    return None if flag is None else bool(flag)


class ProcessEvidence:
    """One evidence file: the life of its process, and what it did as a trainer and as a producer of batches.

    A step's own records may come before it or after it, or without it if it was never completed.
    """

    def __init__(self, first: schema.ProcessRecord, lines: EvidenceLines, most_bytes: int) -> None:
        """Take the records of a file whose bound is `most_bytes`; one that is half full has been thinned."""
        facts = first.facts
        pid, parent, host = facts["pid"], facts.get("parent"), facts.get("host")
        self.process = model.ProbedProcess(
            pid=pid,
            parent=parent if isinstance(parent, int) else 0,
            host=host if isinstance(host, str) else "",
            role="other",
            start=first.t,
            end=None,
            ended=None,
            facts={"process": facts},
            cut=lines.damaged > 0 or lines.bytes * 2 >= most_bytes,
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
        takes = {record: getattr(self, f"_take_{kind}", self._take_row) for kind, record in schema.RECORDS.items()}
        for record in lines.records:
            takes[type(record)](record)
        self._finish()

    @classmethod
    def of(cls, lines: EvidenceLines, most_bytes: int) -> ProcessEvidence | None:
        """Return the evidence of one file, or None for a file without its first line, which says whose it is."""
        first = next((record for record in lines.records if isinstance(record, schema.ProcessRecord)), None)
        return None if first is None or not isinstance(first.facts.get("pid"), int) else cls(first, lines, most_bytes)

    @property
    def is_producer(self) -> bool:
        return self.process.role == "worker" or bool(self.producer.batches.index)

    def _finish(self) -> None:
        """Fill in what only all records tell."""
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

    def _take_row(self, record: Any) -> None:
        """Take a record that is a row of one of the trainer's tables, or one of a list; leave out any other."""
        kind = record.__struct_config__.tag
        if kind in _LISTS:
            owner, name, made = _LISTS[kind]
            getattr(getattr(self, owner), name).append(made(*astuple(record)))
        elif kind in _TABLES:
            table, derived = getattr(self.trainer, _TABLES[kind]), dict[str, Any]()
            if isinstance(table, trainers.Collectives):
                derived["name"] = self._names.get(record.name, "?")
            elif isinstance(table, trainers.ReceivedBatches) and record.shape is not None:
                derived["shape"] = self._shapes.setdefault(self._names.get(record.shape, "?"), len(self._shapes))
            _append(table, record, **derived)

    def _take_name(self, record: schema.NameRecord) -> None:
        self._names[record.number] = record.text

    def _take_facts(self, record: schema.TorchRecord | schema.FactsRecord) -> None:
        self.process.facts.setdefault(str(record.__struct_config__.tag), {}).update(record.facts)

    _take_torch = _take_facts

    def _take_applied(self, record: schema.AppliedRecord) -> None:
        applied = self.process.facts.setdefault("applied", {}).setdefault(record.key, {"count": 0, "texts": []})
        applied["count"] = max(applied["count"], record.count)
        if record.text:
            applied["texts"].append(record.text)

    def _take_note(self, record: schema.NoteRecord) -> None:
        self.notes.append(model.SessionNote(record.code, record.text, self.process.pid, record.t))

    def _take_error(self, record: schema.ErrorRecord) -> None:
        self.process.error = record.text
        self.process.ended = "error"

    def _take_stack(self, record: schema.StackRecord) -> None:
        self.process.stacks.append(f"{record.what}: {record.text}")

    def _take_calls(self, record: schema.CallsRecord) -> None:
        calls = [[self._names.get(what, "?"), self._names.get(place), *row] for what, place, *row in record.calls]
        told = {"time": record.t, "steps": record.steps, "calls": calls}
        self.process.facts.setdefault("calls", []).append(told)

    def _take_end(self, record: schema.EndRecord) -> None:
        self.process.end = record.t
        if self.process.error is None:
            self.process.ended = record.reason

    def _take_last(self, record: schema.LastRecord) -> None:
        for one in reversed(self.trainer.passes):
            if one.number == record.pass_:
                one.last_start, one.last = record.t, record.duration
                return

    def _take_step(self, record: schema.StepRecord) -> None:
        spans = [(kind, record.start + offset, duration) for kind, offset, duration in record.spans]
        probe = None if record.probe is None else record.probe / 10
        _append(self.trainer.steps, record, spans=spans, probe=probe, device=None, ready=None)

    def _take_device(self, record: schema.DeviceRecord) -> None:
        times = (tenths / 10 for tenths in accumulate(record.gaps))
        self._device[record.number] = list(zip(record.kinds, times, strict=False))

    def _take_ready(self, record: schema.ReadyRecord) -> None:
        self._ready[record.number] = record.t

    def _take_worker(self, record: schema.WorkerRecord) -> None:
        producer = self.producer
        producer.facts, producer.begun = record.facts, record.t
        producer.worker, producer.started = record.facts.get("id"), record.facts.get("started_us")

    def _take_batch(self, record: schema.BatchRecord) -> None:
        stages, beside = (
            [(self._stage(name), calls, wall, cpu) for name, calls, wall, cpu in rows]
            for rows in (record.stages, record.beside)
        )
        _append(self.producer.batches, record, stages=stages, beside=beside)

    def _take_slow(self, record: schema.SlowRecord) -> None:
        stages = [(self._stage(name), wall) for name, wall in record.stages]
        sample = producers.SlowSample(record.key, record.epoch, record.index, record.wall, stages, record.cpu)
        self.producer.slow.append(sample)

    def _take_look(self, record: schema.LookRecord) -> None:
        stages = [
            producers.InspectedStage(self._stage(name), bool(drew), _known(same)) for name, drew, same in record.stages
        ]
        drew, same = bool(record.drew), _known(record.same)
        look = producers.InspectedSample(record.epoch, record.index, stages, drew, same, record.takes)
        self.producer.looks.append(look)

    def _take_sample(self, record: schema.SampleRecord) -> None:
        self.producer.samples.append(self._observed(record))

    def _take_collated(self, record: schema.CollatedRecord) -> None:
        output = [producers.OutputLeaf(*leaf) for leaf in record.output]
        self.producer.collated.append(replace(self._observed(record), output=output))

    def _observed(self, record: schema.SampleRecord) -> producers.ObservedSample:
        calls = [
            producers.ObservedCall(self._names.get(stage, UNNAMED), self._names.get(place), facts)
            for stage, place, facts in record.calls
        ]
        return producers.ObservedSample(record.epoch, record.index, record.key, record.wall, calls)

    def _take_lines(self, record: schema.LinesRecord) -> None:
        self._lines.update({self._names[name]: us for name, us in record.counts if name in self._names})

    def _take_loop(self, record: schema.LoopRecord) -> None:
        self._loop_lines.update({self._names[name]: us for name, us in record.counts if name in self._names})

    def _take_opened(self, record: schema.OpenedRecord) -> None:
        self.opened.append((record, self._names))

    def _take_remote(self, record: schema.RemoteRecord) -> None:
        self.remote.append((record, self._names))

    def _take_probe(self, record: schema.ProbeRecord) -> None:
        self.producer.probe = record.us

    def _stage(self, name: int) -> int:
        """Return the place of a stage in `BatchProducer.stages`, which holds each text once."""
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
    """Merge all evidence files of a session's folder, whose settings.json says what was asked for.

    All files use the session's clock. A note names each file that lacks its process's first line. Only the evidence
    knows where the doctor ended a run. Credentials are cut out of what the command was and said, as probes cut them.
    """
    settings = ProbeSettings.read(str(folder))
    paths = sorted(Path(settings.evidence).glob("*.jsonl"))
    collects = gc.isenabled()
    gc.disable()  # it would take more than half of the time (benchmarks/doctor_evidence.py), and nothing has a cycle
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
        if any(window.name in ("replay", "load") for one in failed for window in one.trainer.windows):
            outcome = replace(outcome, why="steps")
            text += " All steps that were asked for had been observed by then."
        told = [model.SessionNote("replay-failed", text, one.process.pid) for one in failed]
    return model.Session(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        mode=mode,
        headrace=str(sys.modules["headrace"].__version__),  # loaded as this one's parent; no room imports from it
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
    """Return texts without credentials: the value of an option may be the text after it."""
    between = "\x1f"  # white space to a pattern, and in no text
    return without_credentials(between.join(texts)).split(between) if len(texts) else []
