"""Read what the probes wrote, and merge the evidence of many processes into one session."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

from headrace.doctor.probe.opened_files import MOST_HASHES
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.session import evidence_records
from headrace.doctor.session.evidence_records import EvidenceLines, read_evidence_lines
from headrace.doctor.session.model import (
    BatchDigest,
    BatchProducer,
    CommandOutcome,
    FileOpens,
    InspectedSample,
    InspectedStage,
    LoaderFacts,
    LoaderFeed,
    Machine,
    MeasuredWindow,
    OpenedFile,
    OpenedFolder,
    ProbedProcess,
    ReceivedBatches,
    Session,
    SessionNote,
    SlowSample,
    SourceLine,
    Trainer,
    TrainerPass,
    UnmeasuredSteps,
    UnreachedProcess,
)

# -- from doctor/evidence/trainer.py: A process's side as a trainer: its steps, and the batches that it received.


TrainerTaker = Callable[[Any], None]


class TrainerEvidence:
    """Gathers the records of docs/doctor/evidence.md, A process that trains. Those that belong to a step are written
    after it, or before it, or without it where it was never completed."""

    def __init__(self) -> None:
        self.trainer = Trainer(pid=0, host="", rank=0)
        self._names: dict[int, str] = {}
        self._shapes: dict[int, int] = {}
        self._device: dict[int, list[tuple[str, float]]] = {}
        self._ready: dict[int, int] = {}

    @property
    def is_one(self) -> bool:
        return bool(self.trainer.steps.number or self.trainer.passes or self.trainer.loaders)

    def takers(self, names: dict[int, str]) -> dict[type[evidence_records.EvidenceRecord], TrainerTaker]:
        """What takes each kind of record; `names` fills as the file is read."""
        self._names = names
        return {
            evidence_records.LoaderRecord: lambda record: self.trainer.loaders.append(
                LoaderFacts(record.loader, record.facts)
            ),
            evidence_records.PassRecord: self._pass,
            evidence_records.GetRecord: lambda record: self._get(self.trainer.gets, record),
            evidence_records.FetchRecord: lambda record: self._get(self.trainer.fetches, record),
            evidence_records.PaddingRecord: self._padding,
            evidence_records.DrainedRecord: lambda record: self._get(self.trainer.drained, record),
            evidence_records.ReplayedRecord: self._replayed,
            evidence_records.WindowRecord: self._window,
            evidence_records.LastRecord: self._last,
            evidence_records.FeedRecord: lambda record: self.trainer.feeds.append(
                LoaderFeed(record.pass_, record.t, record.facts)
            ),
            evidence_records.StepRecord: self._step,
            evidence_records.RestRecord: self._rest,
            evidence_records.DeviceRecord: self._marks,
            evidence_records.ReadyRecord: lambda record: self._ready.update({record.number: record.t}),
            evidence_records.CollectiveRecord: self._collective,
            evidence_records.DigestRecord: lambda record: self.trainer.digests.append(
                BatchDigest(record.pass_, record.content, record.keys, record.sketches)
            ),
        }

    def finished(self, pid: int, host: str, rank: int) -> Trainer:
        """The trainer, with what came after its steps filled in."""
        trainer = self.trainer
        trainer.pid, trainer.host, trainer.rank = pid, host, rank
        trainer.steps.device = [self._device.get(number) for number in trainer.steps.number]
        trainer.steps.ready = [self._ready.get(number) for number in trainer.steps.number]
        return trainer

    def _pass(self, record: evidence_records.PassRecord) -> None:
        self.trainer.passes.append(
            TrainerPass(record.number, record.loader, record.t, record.end_t, record.epoch, record.pids)
        )

    def _get(self, gets: ReceivedBatches, record: evidence_records.GetRecord) -> None:
        gets.pass_.append(record.pass_)
        gets.index.append(record.index)
        gets.start.append(record.t)
        gets.duration.append(record.duration)
        gets.arrived.append(record.arrived)
        gets.unpickle.append(record.unpickle)
        gets.pin_start.append(record.pin_t)
        gets.pin.append(record.pin)
        gets.bytes.append(record.bytes)
        gets.shape.append(None if record.shape is None else self._shape(record.shape))
        gets.unpickle_cpu.append(record.unpickle_cpu)

    def _replayed(self, record: evidence_records.ReplayedRecord) -> None:
        replays = self.trainer.replays
        replays.pass_.append(record.pass_)
        replays.start.append(record.t)
        replays.duration.append(record.duration)

    def _window(self, record: evidence_records.WindowRecord) -> None:
        window = MeasuredWindow(record.name, record.first, record.steps, record.settling, record.t, record.end_t)
        self.trainer.windows.append(window)

    def _shape(self, name: int) -> int:
        """Into `Trainer.shapes`."""
        if name not in self._shapes:
            self._shapes[name] = len(self.trainer.shapes)
            self.trainer.shapes.append(self._names.get(name, "?"))
        return self._shapes[name]

    def _padding(self, record: evidence_records.PaddingRecord) -> None:
        padding = self.trainer.padding
        padding.pass_.append(record.pass_)
        padding.index.append(record.index)
        padding.rows.append(record.rows)
        padding.width.append(record.width)
        padding.filled.append(record.filled)
        padding.longest.append(record.longest)

    def _last(self, record: evidence_records.LastRecord) -> None:
        for number in reversed(self.trainer.passes):
            if number.number == record.pass_:
                number.last_start, number.last = record.t, record.duration
                return

    def _step(self, record: evidence_records.StepRecord) -> None:
        steps = self.trainer.steps
        steps.number.append(record.number)
        steps.start.append(record.t)
        steps.end.append(record.end_t)
        steps.spans.append([(kind, record.t + offset, duration) for kind, offset, duration in record.spans])
        steps.probe.append(None if record.probe is None else record.probe / 10)
        steps.cpu.append(record.cpu)
        steps.delay.append(record.delay)

    def _rest(self, record: evidence_records.RestRecord) -> None:
        rest = UnmeasuredSteps(record.number, record.t, record.end_t, record.steps, record.probe / 10)
        self.trainer.rests.append(rest)

    def _marks(self, record: evidence_records.DeviceRecord) -> None:
        times = (tenths / 10 for tenths in accumulate(record.gaps))
        self._device[record.number] = list(zip(record.kinds, times, strict=False))

    def _collective(self, record: evidence_records.CollectiveRecord) -> None:
        calls = self.trainer.collectives
        calls.step.append(record.number)
        calls.start.append(record.t)
        calls.duration.append(record.duration)
        calls.name.append(self._names.get(record.name, "?"))
        calls.bytes.append(record.bytes)


# -- from doctor/evidence/maker.py: A process's side as a maker of batches: a worker's, or the trainer's own where it
# has no workers.


ProducerTaker = Callable[[Any], None]
UNNAMED = "other:unnamed"
"""A stage whose name was lost with the line that held it."""


class ProducerEvidence:
    """Gathers the records of docs/doctor/evidence.md, A process that makes batches."""

    def __init__(self) -> None:
        self.maker = BatchProducer(pid=0, host="", trainer=None, worker=None)
        self._names: dict[int, str] = {}
        self._stages: dict[str, int] = {}
        self._lines: dict[str, int] = {}

    @property
    def is_worker(self) -> bool:
        return self.maker.begun is not None

    @property
    def is_one(self) -> bool:
        return self.is_worker or bool(self.maker.batches.index)

    def takers(self, names: dict[int, str]) -> dict[type[evidence_records.EvidenceRecord], ProducerTaker]:
        """What takes each kind of record; `names` fills as the file is read."""
        self._names = names
        return {
            evidence_records.WorkerRecord: self._worker,
            evidence_records.BatchRecord: self._batch,
            evidence_records.SlowRecord: self._slow,
            evidence_records.LookRecord: self._look,
            evidence_records.LinesRecord: self._count_lines,
            evidence_records.ProbeCostRecord: self._probe,
        }

    def finished(self, pid: int, host: str) -> BatchProducer:
        """The maker, with its lines summed."""
        maker = self.maker
        maker.pid, maker.host = pid, host
        maker.trainer = maker.facts.get("parent") if self.is_worker else pid
        heaviest = sorted(self._lines.items(), key=lambda item: -item[1])
        maker.lines = [SourceLine(place, us) for place, us in heaviest]
        if not any(maker.batches.beside):
            maker.batches.beside = []
        if all(worked is None for worked in maker.batches.worked):
            maker.batches.worked = []
        return maker

    def _worker(self, record: evidence_records.WorkerRecord) -> None:
        maker, facts = self.maker, record.facts
        maker.facts = facts
        maker.begun = record.t
        maker.worker = facts.get("id")
        maker.started = facts.get("started_us")

    def _batch(self, record: evidence_records.BatchRecord) -> None:
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

    def _slow(self, record: evidence_records.SlowRecord) -> None:
        stages = [(self._stage(name), wall) for name, wall in record.stages]
        self.maker.slow.append(SlowSample(record.key, record.epoch, record.index, record.wall, stages))

    def _look(self, record: evidence_records.LookRecord) -> None:
        stages = [InspectedStage(self._stage(name), bool(drew), _known(same)) for name, drew, same in record.stages]
        drew, same = bool(record.drew), _known(record.same)
        self.maker.looks.append(InspectedSample(record.epoch, record.index, stages, drew, same, record.takes))

    def _table(self, rows: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
        return [(self._stage(name), calls, wall, cpu) for name, calls, wall, cpu in rows]

    def _stage(self, name: int) -> int:
        """Into `Maker.stages`, which holds each text once."""
        stage = self._names.get(name, UNNAMED)
        if stage not in self._stages:
            self._stages[stage] = len(self.maker.stages)
            self.maker.stages.append(stage)
        return self._stages[stage]

    def _count_lines(self, record: evidence_records.LinesRecord) -> None:
        for name, us in record.counts:
            place = self._names.get(name)
            if place is not None:
                self._lines[place] = self._lines.get(place, 0) + us

    def _probe(self, record: evidence_records.ProbeCostRecord) -> None:
        self.maker.probe = record.us


def _known(flag: int | None) -> bool | None:
    return None if flag is None else bool(flag)


# -- from doctor/evidence/opened.py: Files that were opened to be read while batches were made: of one process, and of
# all together.


_HASHES = 1 << 32


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
    """Gathers the `opened` records of docs/doctor/evidence.md."""

    def __init__(self) -> None:
        self.files: Counter[str] = Counter()
        self.folders: dict[str, _OpenedFolder] = {}
        self.rest = 0

    def take(self, record: evidence_records.OpenedRecord, names: dict[int, str]) -> None:
        """What a name that was lost stands for is left out."""
        for name, opens in record.files:
            if name in names:
                self.files[names[name]] += opens
        for name, opens, is_deep, ends, hashes in record.folders:
            if name in names:
                self._add(names[name], _OpenedFolder(bool(is_deep), opens, set(ends), set(hashes)))
        self.rest += record.rest

    def _add(self, path: str, folder: _OpenedFolder) -> None:
        self.folders.setdefault(path, _OpenedFolder()).absorb(folder)

    def absorb(self, other: OpenedEvidence) -> None:
        self.files.update(other.files)
        for path, folder in other.folders.items():
            self._add(path, folder)
        self.rest += other.rest


def merge_opened(sides: Iterable[OpenedEvidence]) -> FileOpens:
    """Of all processes. What lies in a folder that some process told as a whole is a part of that one."""
    whole = OpenedEvidence()
    for side in sides:
        whole.absorb(side)
    folders = _outermost(whole.folders)
    return FileOpens(
        files=[OpenedFile(path, opens) for path, opens in whole.files.most_common()],
        folders=[_finished(path, one) for path, one in sorted(folders.items(), key=lambda item: -item[1].opens)],
        rest=whole.rest,
    )


def _outermost(folders: dict[str, _OpenedFolder]) -> dict[str, _OpenedFolder]:
    deep = [path for path, one in folders.items() if one.is_deep]
    found: dict[str, _OpenedFolder] = {}
    for path, one in folders.items():
        above = min((it for it in deep if path == it or path.startswith(f"{it}/")), key=len, default=path)
        found.setdefault(above, _OpenedFolder()).absorb(one)
    return found


def _finished(path: str, folder: _OpenedFolder) -> OpenedFolder:
    least = sorted(folder.hashes)[:MOST_HASHES]
    is_exact = len(least) < MOST_HASHES
    # Of many values that are spread evenly, the n-th least lies where n parts of the range are passed.
    names = len(least) if is_exact else round((len(least) - 1) * _HASHES / max(least[-1], 1))
    return OpenedFolder(path, folder.opens, names, is_exact, folder.is_deep, sorted(folder.ends))


# -- from doctor/evidence/process.py: One process's evidence file, put together: its life, and its sides as a trainer
# and as a maker of batches.


@dataclass
class ProcessEvidence:
    """What one file says. `trainer` and `maker` hold nothing where the process was neither."""

    process: ProbedProcess
    trainer: TrainerEvidence
    maker: ProducerEvidence
    opened: OpenedEvidence = field(default_factory=OpenedEvidence)
    notes: list[SessionNote] = field(default_factory=list)

    @classmethod
    def of(cls, lines: EvidenceLines, most_bytes: int) -> ProcessEvidence | None:
        """None for a file without its first line, which says whose it is. `most_bytes` is the file's bound: one that
        is half full has been thinned."""
        first = next((record for record in lines.records if isinstance(record, evidence_records.ProcessRecord)), None)
        if first is None or not isinstance(first.facts.get("pid"), int):
            return None
        evidence = cls(_process(first), TrainerEvidence(), ProducerEvidence())
        evidence.process.evidence_bytes = lines.bytes
        evidence.process.cut = lines.damaged > 0 or lines.bytes * 2 >= most_bytes
        evidence._take(lines.records)
        return evidence

    def _take(self, taken: list[evidence_records.EvidenceRecord]) -> None:
        names: dict[int, str] = {}
        take = self._takers(names)
        for record in taken:
            taker = take.get(type(record))
            if taker is not None:
                taker(record)
        self.process.role = "worker" if self.maker.is_worker else "trainer" if self.trainer.is_one else "other"

    def _takers(self, names: dict[int, str]) -> dict[type[evidence_records.EvidenceRecord], Callable[[Any], None]]:
        return {
            evidence_records.NameRecord: lambda record: names.update({record.number: record.text}),
            evidence_records.TorchRecord: self._facts("torch"),
            evidence_records.FactsRecord: self._facts("facts"),
            evidence_records.NoteRecord: self._note,
            evidence_records.ErrorRecord: self._error,
            evidence_records.StackRecord: lambda record: self.process.stacks.append(f"{record.what}: {record.text}"),
            evidence_records.EndRecord: self._end,
            evidence_records.AppliedRecord: self._applied,
            evidence_records.OpenedRecord: lambda record: self.opened.take(record, names),
            **self.trainer.takers(names),
            **self.maker.takers(names),
        }

    def _facts(self, kind: str) -> Callable[[evidence_records.TorchRecord | evidence_records.FactsRecord], None]:
        return lambda record: self.process.facts.setdefault(kind, {}).update(record.facts)

    def _applied(self, record: evidence_records.AppliedRecord) -> None:
        applied = self.process.facts.setdefault("applied", {}).setdefault(record.key, {"count": 0, "texts": []})
        applied["count"] = max(applied["count"], record.count)
        if record.text:
            applied["texts"].append(record.text)

    def _note(self, record: evidence_records.NoteRecord) -> None:
        self.notes.append(SessionNote(record.code, record.text, self.process.pid, record.t))

    def _error(self, record: evidence_records.ErrorRecord) -> None:
        self.process.error = record.text
        self.process.ended = "error"

    def _end(self, record: evidence_records.EndRecord) -> None:
        self.process.end = record.t
        if self.process.error is None:
            self.process.ended = record.reason


def _process(record: evidence_records.ProcessRecord) -> ProbedProcess:
    facts = record.facts
    parent, host = facts.get("parent"), facts.get("host")
    return ProbedProcess(
        pid=facts["pid"],
        parent=parent if isinstance(parent, int) else 0,
        host=host if isinstance(host, str) else "",
        role="other",
        start=record.t,
        end=None,
        ended=None,
        facts={"process": facts},
    )


# -- from doctor/evidence/merge.py: The evidence of many processes, as one session.


def read_session(
    folder: Path,
    *,
    outcome: CommandOutcome,
    mode: str,
    created: str,
    headrace: str,
    machines: Sequence[Machine] = (),
    unreached: Sequence[UnreachedProcess] = (),
    notes: Sequence[SessionNote] = (),
) -> Session:
    """Merges every evidence file of a session's folder, whose settings.json says what was asked for.

    All files are on the session's clock already. Those that hold no process's first line are counted in a note.
    """
    settings = ProbeSettings.read(str(folder))
    with _no_collection():
        found = [
            (path, ProcessEvidence.of(read_evidence_lines(path), settings.most_bytes))
            for path in sorted(Path(settings.evidence).glob("*.jsonl"))
        ]
    whole = sorted((evidence for _, evidence in found if evidence is not None), key=lambda one: one.process.start)
    trainers = _trainers(whole)
    return Session(
        created=created,
        mode=mode,
        headrace=headrace,
        warmup=settings.warmup,
        steps=settings.steps,
        outcome=outcome,
        processes=[evidence.process for evidence in whole],
        trainers=trainers,
        makers=_producers(whole, trainers),
        opened=merge_opened(one.opened for one in whole),
        machines=list(machines),
        unreached=list(unreached),
        notes=[*notes, *(note for one in whole for note in one.notes), *_empty(path for path, one in found if not one)],
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Nothing that is read is part of a cycle, and there is much of it: Python's collector, looking for cycles in it
    again and again, would take more than half of the time (benchmarks/doctor_evidence.py)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _trainers(whole: Iterable[ProcessEvidence]) -> list[Trainer]:
    """By rank. A process that says none is rank 0, as the only one of its training is."""
    trainers = [
        one.trainer.finished(one.process.pid, one.process.host, _rank(one))
        for one in whole
        if one.process.role == "trainer"
    ]
    return sorted(trainers, key=lambda trainer: trainer.rank)


def _rank(evidence: ProcessEvidence) -> int:
    """As the process group says where it told, else as the launcher's environment does."""
    facts = evidence.process.facts
    for kind in ("facts", "torch", "process"):
        rank = facts.get(kind, {}).get("rank")
        if isinstance(rank, int):
            return rank
    return 0


def _producers(whole: Iterable[ProcessEvidence], trainers: Iterable[Trainer]) -> list[BatchProducer]:
    makers = [one.maker.finished(one.process.pid, one.process.host) for one in whole if one.maker.is_one]
    served = {(trainer.host, pid): trainer.pid for trainer in trainers for one in trainer.passes for pid in one.workers}
    for maker in makers:
        maker.trainer = served.get((maker.host, maker.pid), maker.trainer)
    return makers


def _empty(paths: Iterable[Path]) -> list[SessionNote]:
    return [SessionNote("empty", f"{path.name}: no process's first line; what it observed is lost") for path in paths]
