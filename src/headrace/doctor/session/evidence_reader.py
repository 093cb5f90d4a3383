"""Read what the probes wrote, and merge the evidence of many processes into one session.

`probe/evidence_schema.py` describes the records. Evidence may be damaged, or of another version: a damaged line is
counted and skipped, a kind that only a newer probe knows is skipped, and so are fields that it has appended.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Union, get_type_hints

import msgspec
from msgspec.structs import astuple

from headrace.doctor.probe import evidence_schema as schema
from headrace.doctor.probe.opened_files import MOST_HASHES
from headrace.doctor.probe.settings import ProbeSettings

from . import model

UNNAMED = "other:unnamed"
"""Stage whose name was lost with the line that held it."""
_HASHES = 1 << 32

Handlers = dict[type[schema.EvidenceRecord], Callable[[Any], None]]
"""Methods that take the records of each kind."""


def _struct(record: type[schema.EvidenceRecord]) -> type[msgspec.Struct]:
    """Return the struct that decodes a record: an array that begins with the record's kind."""
    types = get_type_hints(record)
    named = [
        (name, types[name], getattr(record, name)) if hasattr(record, name) else (name, types[name])
        for name in schema.fields_of(record)
    ]
    return msgspec.defstruct(record.__name__, named, array_like=True, tag_field="kind", tag=record.kind)


STRUCTS: dict[type[schema.EvidenceRecord], Any] = {record: _struct(record) for record in schema.RECORDS}
_KINDS = {record.kind for record in schema.RECORDS}
_ANY: Any = Union[tuple(STRUCTS.values())]  # noqa: UP007  (a union of a tuple has no other spelling)
_decode = msgspec.json.Decoder(_ANY).decode


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
            lines.records.append(_decode(text))
        except (msgspec.DecodeError, UnicodeDecodeError):
            lines.damaged += not _is_newer(text)
    return lines


def _is_newer(text: bytes) -> bool:
    """Return whether a line is a record of a kind that only a newer probe knows."""
    try:
        kind = msgspec.json.decode(text)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return False
    return isinstance(kind, str) and kind not in _KINDS


@cache
def _columns(table: type) -> list[str]:
    return [column.name for column in fields(table)]


def _append(table: Any, record: Any, **derived: Any) -> None:
    """Append a record to the columns of the same names; `derived` gives those that differ from what was written."""
    for name in _columns(table.__class__):
        getattr(table, name).append(derived[name] if name in derived else getattr(record, name))


class TrainerEvidence:
    """Records of a process that trains.

    A step's own records may come before it or after it, or without it if it was never completed.
    """

    def __init__(self, names: dict[int, str]) -> None:
        """Take records whose texts are in `names`, which fills as the file is read."""
        self.trainer = trainer = model.Trainer(pid=0, host="", rank=0)
        self._names = names
        self._shapes: dict[int, int] = {}
        self._device: dict[int, list[tuple[str, float]]] = {}
        self._ready: dict[int, int] = {}
        self.handlers: Handlers = {
            schema.LoaderRecord: self._take_loader,
            schema.PassRecord: lambda record: trainer.passes.append(model.TrainerPass(*astuple(record))),
            schema.LastRecord: self._take_last,
            schema.GetRecord: lambda record: self._take_get(trainer.gets, record),
            schema.FetchRecord: lambda record: self._take_get(trainer.fetches, record),
            schema.DrainedRecord: lambda record: self._take_get(trainer.drained, record),
            schema.PaddingRecord: lambda record: _append(trainer.padding, record),
            schema.ReplayedRecord: lambda record: _append(trainer.replays, record),
            schema.WindowRecord: lambda record: trainer.windows.append(model.MeasuredWindow(*astuple(record))),
            schema.FeedRecord: lambda record: trainer.feeds.append(model.LoaderFeed(*astuple(record))),
            schema.DigestRecord: lambda record: trainer.digests.append(model.BatchDigest(*astuple(record))),
            schema.StepRecord: self._take_step,
            schema.RestRecord: self._take_rest,
            schema.DeviceRecord: self._take_marks,
            schema.ReadyRecord: lambda record: self._ready.update({record.number: record.t}),
            schema.CollectiveRecord: self._take_collective,
        }

    @property
    def is_present(self) -> bool:
        return bool(self.trainer.steps.number or self.trainer.passes or self.trainer.loaders)

    def finish(self, pid: int, host: str, rank: int) -> model.Trainer:
        """Return the trainer, with what came after its steps filled in."""
        trainer = self.trainer
        trainer.pid, trainer.host, trainer.rank = pid, host, rank
        trainer.steps.device = [self._device.get(number) for number in trainer.steps.number]
        trainer.steps.ready = [self._ready.get(number) for number in trainer.steps.number]
        return trainer

    def _take_loader(self, record: schema.LoaderRecord) -> None:
        self.trainer.loaders.append(model.LoaderFacts(record.loader, record.facts))

    def _take_last(self, record: schema.LastRecord) -> None:
        for one in reversed(self.trainer.passes):
            if one.number == record.pass_:
                one.last_start, one.last = record.t, record.duration
                return

    def _take_get(self, gets: model.ReceivedBatches, record: schema.GetRecord) -> None:
        _append(gets, record, shape=None if record.shape is None else self._shape(record.shape))

    def _shape(self, name: int) -> int:
        """Return the place of a shape in `Trainer.shapes`."""
        if name not in self._shapes:
            self._shapes[name] = len(self.trainer.shapes)
            self.trainer.shapes.append(self._names.get(name, "?"))
        return self._shapes[name]

    def _take_step(self, record: schema.StepRecord) -> None:
        spans = [(kind, record.start + offset, duration) for kind, offset, duration in record.spans]
        probe = None if record.probe is None else record.probe / 10
        _append(self.trainer.steps, record, spans=spans, probe=probe, device=None, ready=None)

    def _take_rest(self, record: schema.RestRecord) -> None:
        rest = model.UnmeasuredSteps(record.number, record.t, record.end_t, record.steps, record.probe / 10)
        self.trainer.rests.append(rest)

    def _take_marks(self, record: schema.DeviceRecord) -> None:
        times = (tenths / 10 for tenths in accumulate(record.gaps))
        self._device[record.number] = list(zip(record.kinds, times, strict=False))

    def _take_collective(self, record: schema.CollectiveRecord) -> None:
        _append(self.trainer.collectives, record, name=self._names.get(record.name, "?"))


class ProducerEvidence:
    """Records of a process that produces batches: a worker, or a trainer without workers."""

    def __init__(self, names: dict[int, str]) -> None:
        """Take records whose texts are in `names`, which fills as the file is read."""
        self.producer = model.BatchProducer(pid=0, host="", trainer=None, worker=None)
        self._names = names
        self._stages: dict[str, int] = {}
        self._lines: Counter[str] = Counter()
        self.handlers: Handlers = {
            schema.WorkerRecord: self._take_worker,
            schema.BatchRecord: self._take_batch,
            schema.SlowRecord: self._take_slow,
            schema.LookRecord: self._take_look,
            schema.LinesRecord: self._take_lines,
            schema.ProbeRecord: self._take_cost,
        }

    @property
    def is_worker(self) -> bool:
        return self.producer.begun is not None

    @property
    def is_present(self) -> bool:
        return self.is_worker or bool(self.producer.batches.index)

    def finish(self, pid: int, host: str) -> model.BatchProducer:
        """Return the producer, with its lines summed."""
        producer, batches = self.producer, self.producer.batches
        producer.pid, producer.host = pid, host
        producer.trainer = producer.facts.get("parent") if self.is_worker else pid
        producer.lines = [model.SourceLine(place, us) for place, us in self._lines.most_common()]
        if not any(batches.beside):
            batches.beside = []
        if all(worked is None for worked in batches.worked):
            batches.worked = []
        return producer

    def _take_worker(self, record: schema.WorkerRecord) -> None:
        producer, facts = self.producer, record.facts
        producer.facts = facts
        producer.begun = record.t
        producer.worker = facts.get("id")
        producer.started = facts.get("started_us")

    def _take_batch(self, record: schema.BatchRecord) -> None:
        stages, beside = self._rows(record.stages), self._rows(record.beside)
        _append(self.producer.batches, record, stages=stages, beside=beside)

    def _take_slow(self, record: schema.SlowRecord) -> None:
        stages = [(self._stage(name), wall) for name, wall in record.stages]
        self.producer.slow.append(model.SlowSample(record.key, record.epoch, record.index, record.wall, stages))

    def _take_look(self, record: schema.LookRecord) -> None:
        drew, same = bool(record.drew), _known(record.same)
        stages = [model.InspectedStage(self._stage(one[0]), bool(one[1]), _known(one[2])) for one in record.stages]
        sample = model.InspectedSample(record.epoch, record.index, stages, drew, same, record.takes)
        self.producer.looks.append(sample)

    def _take_lines(self, record: schema.LinesRecord) -> None:
        for name, us in record.counts:
            if name in self._names:
                self._lines[self._names[name]] += us

    def _take_cost(self, record: schema.ProbeRecord) -> None:
        self.producer.probe = record.us

    def _rows(self, rows: list[schema.StageRow]) -> list[schema.StageRow]:
        return [(self._stage(name), calls, wall, cpu) for name, calls, wall, cpu in rows]

    def _stage(self, name: int) -> int:
        """Return the place of a stage in `BatchProducer.stages`, which holds each text once."""
        stage = self._names.get(name, UNNAMED)
        if stage not in self._stages:
            self._stages[stage] = len(self.producer.stages)
            self.producer.stages.append(stage)
        return self._stages[stage]


def _known(flag: int | None) -> bool | None:
    return None if flag is None else bool(flag)


@dataclass
class _OpenedFolder:
    is_deep: bool = False
    opens: int = 0
    ends: set[str] = field(default_factory=set)
    hashes: set[int] = field(default_factory=set)

    def absorb(self, other: _OpenedFolder) -> None:
        self.is_deep |= other.is_deep
        self.opens += other.opens
        self.ends |= other.ends
        self.hashes |= other.hashes


class OpenedEvidence:
    """Files that were opened for reading during batch production, by one process or by all together."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.folders: dict[str, _OpenedFolder] = {}
        self.rest = 0

    def take(self, record: schema.OpenedRecord, names: dict[int, str]) -> None:
        """Add a record, without the paths whose names were lost."""
        for name, opens in record.files:
            if name in names:
                self.files[names[name]] += opens
        for name, opens, is_deep, ends, hashes in record.folders:
            if name in names:
                self._add(names[name], _OpenedFolder(bool(is_deep), opens, set(ends), set(hashes)))
        self.rest += record.rest

    def absorb(self, other: OpenedEvidence) -> None:
        """Add what another process opened."""
        self.files.update(other.files)
        for path, folder in other.folders.items():
            self._add(path, folder)
        self.rest += other.rest

    def finish(self) -> model.FileOpens:
        """Return files and folders, those with the most opens first."""
        folders = sorted(self._outermost().items(), key=lambda item: -item[1].opens)
        return model.FileOpens(
            files=[model.OpenedFile(path, opens) for path, opens in self.files.most_common()],
            folders=[_finish_folder(path, folder) for path, folder in folders],
            rest=self.rest,
        )

    def _add(self, path: str, folder: _OpenedFolder) -> None:
        self.folders.setdefault(path, _OpenedFolder()).absorb(folder)

    def _outermost(self) -> dict[str, _OpenedFolder]:
        """Return the folders, less those inside one that some process counted as a whole: they are part of that one."""
        deep = [path for path, folder in self.folders.items() if folder.is_deep]
        found: dict[str, _OpenedFolder] = {}
        for path, folder in self.folders.items():
            above = min((it for it in deep if path == it or path.startswith(f"{it}/")), key=len, default=path)
            found.setdefault(above, _OpenedFolder()).absorb(folder)
        return found


def merge_opened(sides: Iterable[OpenedEvidence]) -> model.FileOpens:
    """Return what several processes opened."""
    whole = OpenedEvidence()
    for side in sides:
        whole.absorb(side)
    return whole.finish()


def _finish_folder(path: str, folder: _OpenedFolder) -> model.OpenedFolder:
    least = sorted(folder.hashes)[:MOST_HASHES]
    is_exact = len(least) < MOST_HASHES
    # Of many values that are spread evenly, the n-th least lies where n parts of the range are passed.
    names = len(least) if is_exact else round((len(least) - 1) * _HASHES / max(least[-1], 1))
    return model.OpenedFolder(path, folder.opens, names, is_exact, folder.is_deep, sorted(folder.ends))


class ProcessEvidence:
    """One evidence file: the life of its process, and what it did as a trainer and as a producer of batches."""

    def __init__(self, first: schema.ProcessRecord, lines: EvidenceLines, most_bytes: int) -> None:
        """Take the records of a file whose bound is `most_bytes`; one that is half full has been thinned."""
        names: dict[int, str] = {}
        facts = first.facts
        parent, host = facts.get("parent"), facts.get("host")
        self.process = model.ProbedProcess(
            pid=facts["pid"],
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
        self.trainer = TrainerEvidence(names)
        self.producer = ProducerEvidence(names)
        self.opened = OpenedEvidence()
        self.notes: list[model.SessionNote] = []
        self._take(lines.records, names)

    @classmethod
    def of(cls, lines: EvidenceLines, most_bytes: int) -> ProcessEvidence | None:
        """Return the evidence of one file, or None for a file without its first line, which says whose it is."""
        first = next((record for record in lines.records if type(record) is STRUCTS[schema.ProcessRecord]), None)
        return None if first is None or not isinstance(first.facts.get("pid"), int) else cls(first, lines, most_bytes)

    @property
    def rank(self) -> int:
        """Rank by the process group, or else by the launcher's environment; a process with neither is rank 0."""
        facts = self.process.facts
        ranks = (facts.get(kind, {}).get("rank") for kind in ("facts", "torch", "process"))
        return next((rank for rank in ranks if isinstance(rank, int)), 0)

    def _take(self, records: list[Any], names: dict[int, str]) -> None:
        handlers: Handlers = {
            schema.NameRecord: lambda record: names.update({record.number: record.text}),
            schema.TorchRecord: lambda record: self._take_facts("torch", record),
            schema.FactsRecord: lambda record: self._take_facts("facts", record),
            schema.NoteRecord: self._take_note,
            schema.ErrorRecord: self._take_error,
            schema.StackRecord: lambda record: self.process.stacks.append(f"{record.what}: {record.text}"),
            schema.EndRecord: self._take_end,
            schema.AppliedRecord: self._take_applied,
            schema.OpenedRecord: lambda record: self.opened.take(record, names),
            **self.trainer.handlers,
            **self.producer.handlers,
        }
        by_struct = {STRUCTS[kind]: handler for kind, handler in handlers.items()}
        for record in records:
            handler = by_struct.get(type(record))
            if handler is not None:
                handler(record)
        self.process.role = "worker" if self.producer.is_worker else "trainer" if self.trainer.is_present else "other"

    def _take_facts(self, kind: str, record: schema.TorchRecord | schema.FactsRecord) -> None:
        self.process.facts.setdefault(kind, {}).update(record.facts)

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

    def _take_end(self, record: schema.EndRecord) -> None:
        self.process.end = record.t
        if self.process.error is None:
            self.process.ended = record.reason


def read_session(
    folder: Path,
    *,
    outcome: model.CommandOutcome,
    mode: str,
    created: str,
    headrace: str,
    machines: Sequence[model.Machine] = (),
    unreached: Sequence[model.UnreachedProcess] = (),
    notes: Sequence[model.SessionNote] = (),
) -> model.Session:
    """Merge all evidence files of a session's folder, whose settings.json says what was asked for.

    All files use the session's clock. A note names each file that lacks its process's first line.
    """
    settings = ProbeSettings.read(str(folder))
    with _no_collection():
        paths = sorted(Path(settings.evidence).glob("*.jsonl"))
        found = [(path, ProcessEvidence.of(read_evidence_lines(path), settings.most_bytes)) for path in paths]
    whole = sorted((one for _, one in found if one is not None), key=lambda one: one.process.start)
    empty = [_empty(path) for path, one in found if one is None]
    trainers = _trainers(whole)
    return model.Session(
        created=created,
        mode=mode,
        headrace=headrace,
        warmup=settings.warmup,
        steps=settings.steps,
        outcome=outcome,
        processes=[one.process for one in whole],
        trainers=trainers,
        makers=_producers(whole, trainers),
        opened=merge_opened(one.opened for one in whole),
        machines=list(machines),
        unreached=list(unreached),
        notes=[*notes, *(note for one in whole for note in one.notes), *empty],
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Pause Python's collector, which would take more than half of the time (benchmarks/doctor_evidence.py).

    Nothing that is read is part of a cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _trainers(whole: Iterable[ProcessEvidence]) -> list[model.Trainer]:
    """Return the processes that trained, by rank."""
    training = [one for one in whole if one.process.role == "trainer"]
    trainers = [one.trainer.finish(one.process.pid, one.process.host, one.rank) for one in training]
    return sorted(trainers, key=lambda trainer: trainer.rank)


def _producers(whole: Iterable[ProcessEvidence], trainers: Iterable[model.Trainer]) -> list[model.BatchProducer]:
    """Return the processes that produced batches, each with the trainer whose pass it served."""
    served = {(trainer.host, pid): trainer.pid for trainer in trainers for one in trainer.passes for pid in one.workers}
    producers = [one.producer.finish(one.process.pid, one.process.host) for one in whole if one.producer.is_present]
    for producer in producers:
        producer.trainer = served.get((producer.host, producer.pid), producer.trainer)
    return producers


def _empty(path: Path) -> model.SessionNote:
    return model.SessionNote("empty", f"{path.name}: no process's first line; what it observed is lost")
