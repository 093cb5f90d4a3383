"""Read the probes' evidence files into one session. Damaged lines are counted and skipped."""

from __future__ import annotations

import gc
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import astuple, replace

from headrace.doctor.probe.evidence_file import without_credentials
from headrace.doctor.probe.settings import ProbeSettings
from headrace.doctor.session import evidence, model, trainers
from headrace.doctor.session.storage import merge_remote
from headrace.doctor.session.trainers import REPLAY

UNNAMED = "other:unnamed"
"""Placeholder for a stage name that was lost with its line."""
_Line = TypeVar("_Line", bound=evidence.EvidenceLine)
_Row = TypeVar("_Row", bound=msgspec.Struct)


class EvidenceLines:
    """Readable records of one evidence file, in the file's order."""

    def __init__(self, path: Path) -> None:
        """Read the file, in whatever state its process left it."""
        data = path.read_bytes()
        whole, _, cut = data.rpartition(b"\n")
        self.records: list[evidence.EvidenceLine] = []
        self.bytes = len(data)
        self.damaged = 1 if cut else 0
        """Number of incomplete records, left by a killed process or a full disk."""
        for text in whole.splitlines():
            try:
                self.records.append(evidence.decode_record(text))
            except (msgspec.DecodeError, UnicodeDecodeError):
                self.damaged += 1


class ProcessEvidence:
    """Evidence file of one process: its life, and its work as a trainer and as a producer of batches.

    Records about a step may precede or follow the step's own record, which is missing if the step never completed.
    """

    def __init__(self, first: evidence.ProcessLine, lines: EvidenceLines, most_bytes: int) -> None:
        """Process the records. A file near `most_bytes`, its size limit, was cut."""
        self._kinds: defaultdict[type, list[Any]] = defaultdict(list)
        for record in lines.records:
            self._kinds[type(record)].append(record)
        self._names = {record.number: record.text for record in self._of(evidence.NameLine)}
        self.is_damaged = lines.damaged > 0
        is_cut = self.is_damaged or lines.bytes * 4 >= most_bytes * 3
        self.process = self._process(first, is_cut=is_cut, size=lines.bytes)
        self.trainer = self._trainer()
        self.producer = self._producer()
        if self._kinds[evidence.WorkerLine]:
            self.process.role = "worker"
        elif self.trainer.steps.number or self.trainer.passes or self.trainer.loaders:
            self.process.role = "trainer"

    @classmethod
    def of(cls, lines: EvidenceLines, most_bytes: int) -> ProcessEvidence | None:
        """Return the evidence of one file; None if the first line, which identifies the process, is missing."""
        first = next((record for record in lines.records if isinstance(record, evidence.ProcessLine)), None)
        return None if first is None or not isinstance(first.facts.get("pid"), int) else cls(first, lines, most_bytes)

    def covers(self, until: int) -> bool:
        """Return True if a worker's full file lacks no record up to a time. With `--observe`, it goes on for longer."""
        return (
            not self.is_damaged
            and self.process.role == "worker"
            and max(self.producer.batches.fetched, default=0) > until
        )

    @property
    def notes(self) -> list[model.SessionNote]:
        told = self._of(evidence.NoteLine)
        return [model.SessionNote(one.code, one.text, self.process.pid, one.time) for one in told]

    def remote(self) -> list[trainers.RemoteReads]:
        return [remote_reads(one, self._names) for one in self._of(evidence.RemoteLine)]

    def _of(self, kind: type[_Line]) -> list[_Line]:
        return self._kinds[kind]

    def _rows(self, row: type[_Row], kind: type[evidence.EvidenceLine]) -> list[_Row]:
        """Return the session's rows of a kind with the same fields."""
        return [row(*astuple(record)) for record in self._of(kind)]

    def _process(self, first: evidence.ProcessLine, *, is_cut: bool, size: int) -> model.ProbedProcess:
        errors, ends = self._of(evidence.ErrorLine), self._of(evidence.EndLine)
        parent, host = first.facts.get("parent"), first.facts.get("host")
        return model.ProbedProcess(
            pid=first.facts["pid"],
            parent=parent if isinstance(parent, int) else 0,
            host=host if isinstance(host, str) else "",
            role="other",
            start=first.time,
            end=ends[-1].time if ends else None,
            ended="error" if errors else ends[-1].reason if ends else None,
            facts=self._facts(first),
            error=errors[-1].text if errors else None,
            stacks=[f"{one.what}: {one.text}" for one in self._of(evidence.StackLine)],
            cut=is_cut,
            evidence_bytes=size,
        )

    def _facts(self, first: evidence.ProcessLine) -> dict[str, Any]:
        facts: dict[str, Any] = {"process": first.facts}
        for name, kind in (("torch", evidence.TorchLine), ("facts", evidence.FactsLine)):
            for one in self._of(kind):
                facts.setdefault(name, {}).update(one.facts)
        for change in self._of(evidence.AppliedLine):
            applied = facts.setdefault("applied", {}).setdefault(change.key, {"count": 0, "texts": []})
            applied["count"] = max(applied["count"], change.count)
            applied["texts"] += [change.text] if change.text else []
        return facts

    def _trainer(self) -> trainers.Trainer:
        process, shapes = self.process, dict[str, int]()
        ranks = (process.facts.get(kind, {}).get("rank") for kind in ("facts", "torch", "process"))
        rank = next((rank for rank in ranks if isinstance(rank, int)), 0)
        passes = {one.number: one for one in self._rows(trainers.TrainerPass, evidence.PassLine)}
        for last in self._of(evidence.LastLine):
            if last.pass_ in passes:
                passes[last.pass_].last_start, passes[last.pass_].last = last.start, last.duration
        calls = self._of(evidence.CollectiveLine)
        collectives = trainers.Collectives.of(calls)
        collectives.name = [self._names.get(one.name, "?") for one in calls]
        return trainers.Trainer(
            process.pid,
            process.host,
            rank,
            steps=self._steps(),
            gets=self._received(evidence.GetLine, shapes),
            fetches=self._received(evidence.FetchLine, shapes),
            passes=list(passes.values()),
            loaders=[trainers.LoaderFacts(one.number, one.facts, one.time) for one in self._of(evidence.LoaderLine)],
            collectives=collectives,
            padding=trainers.BatchPadding.of(self._of(evidence.PaddingLine)),
            windows=self._rows(trainers.MeasuredWindow, evidence.WindowLine),
            replays=trainers.ReplayedBatches.of(self._of(evidence.ReplayedLine)),
            digests=self._rows(trainers.BatchDigest, evidence.DigestLine),
            keys=self._rows(trainers.PassKeys, evidence.KeysLine),
            rows=self._rows(trainers.StreamRows, evidence.RowsLine),
            drawn=self._rows(trainers.DrawnBatch, evidence.DrawnLine),
            saved=self._rows(trainers.SavedCheckpoint, evidence.SavedLine),
            lines=self._lines(evidence.LoopLine),
            before=self._lines(evidence.BeforeLine),
            shapes=list(shapes),
        )

    def _steps(self) -> trainers.OptimizerSteps:
        records = self._of(evidence.StepLine)
        device = {
            one.number: list(zip(one.kinds, (tenths / 10 for tenths in accumulate(one.gaps)), strict=False))
            for one in self._of(evidence.DeviceLine)
        }
        ready = {one.number: one.time for one in self._of(evidence.ReadyLine)}
        steps = trainers.OptimizerSteps.of(records)
        steps.spans = [[(kind, one.start + offset, us) for kind, offset, us in one.spans] for one in records]
        steps.probe = [None if one.probe is None else one.probe / 10 for one in records]
        steps.device = [device.get(number) for number in steps.number]
        steps.ready = [ready.get(number) for number in steps.number]
        return steps

    def _received(self, kind: type[evidence.GetLine], shapes: dict[str, int]) -> trainers.ReceivedBatches:
        """Return the batches of one kind; `shapes` numbers the texts of their shapes."""
        batches = trainers.ReceivedBatches.of(self._of(kind))
        texts = [None if shape is None else self._names.get(shape, "?") for shape in batches.shape]
        batches.shape = [None if text is None else shapes.setdefault(text, len(shapes)) for text in texts]
        return batches

    def _producer(self) -> trainers.BatchProducer:
        records, names, stages = self._of(evidence.BatchLine), self._names, dict[str, int]()
        for one in records:
            one.stages = [(stages.setdefault(names.get(row[0], UNNAMED), len(stages)), *row[1:]) for row in one.stages]
        batches = trainers.ProducedBatches.of(records)
        worker = next(iter(self._of(evidence.WorkerLine)), None)
        facts = {} if worker is None else worker.facts
        return trainers.BatchProducer(
            self.process.pid,
            self.process.host,
            trainer=self.process.pid if worker is None else facts.get("parent"),
            worker=facts.get("id"),
            begun=None if worker is None else worker.time,
            stages=list(stages),
            batches=batches,
            first=[
                trainers.FirstBatch(
                    *(one.epoch, one.index, one.keys, one.leaves, one.generators),
                    [names[name] for name in one.files if name in names],
                    one.state,
                )
                for one in self._of(evidence.FirstLine)
            ],
            lines=self._lines(evidence.LinesLine),
        )

    def _lines(self, kind: type[evidence.LoopLine]) -> list[trainers.SourceLine]:
        times: Counter[str] = Counter()
        for record in self._of(kind):
            times.update({self._names[name]: us for name, us in record.counts if name in self._names})
        return [trainers.SourceLine(place, us) for place, us in times.most_common()]


def remote_reads(record: evidence.RemoteLine, names: Mapping[int, str]) -> trainers.RemoteReads:
    """Return the requests of a record, without stores whose names were lost."""
    stores = [trainers.StoreReads(names[row[0]], *row[1:]) for row in record.stores if row[0] in names]
    return trainers.RemoteReads(record.batches, stores)


def read_session(
    folder: Path,
    *,
    outcome: model.CommandOutcome,
    mode: str,
    machines: Sequence[model.Machine] = (),
    notes: Sequence[model.SessionNote] = (),
) -> model.Session:
    """Merge all evidence files of a session's folder, which has the run's settings in settings.json.

    All files use the session's clock. A note names each file without the first line of its process. The evidence alone
    shows if the doctor ended the run. Credentials are removed from the command and its output, as probes do.
    """
    settings = ProbeSettings.read(str(folder))
    paths, unstarted = (sorted(Path(settings.evidence).glob(name)) for name in ("*.jsonl", "failed-*.txt"))
    collects = gc.isenabled()
    gc.disable()  # GC would take over half of the time (benchmarks/doctor_evidence.py), and there are no cycles
    try:
        found = [(path, ProcessEvidence.of(EvidenceLines(path), settings.most_bytes)) for path in paths]
    finally:
        if collects:
            gc.enable()
    whole = sorted((one for _, one in found if one is not None), key=lambda one: one.process.start)
    outcome, replay_notes = _replayed_outcome(outcome, whole)
    ranks = sorted((one.trainer for one in whole if one.process.role == "trainer"), key=lambda one: one.rank)
    served = {(trainer.host, pid): trainer.pid for trainer in ranks for one in trainer.passes for pid in one.workers}
    ends = {(trainer.host, trainer.pid): trainer.steps.end[-1] for trainer in ranks if trainer.steps.end}
    for one in whole:
        maker = one.producer
        maker.trainer = served.get((maker.host, maker.pid), maker.trainer)
        end = ends.get((maker.host, maker.trainer or 0))
        one.process.cut &= end is None or not one.covers(end)
    return model.Session(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        mode=mode,
        headrace=str(sys.modules["headrace"].__version__),  # the loaded parent; subpackages do not import it
        warmup=settings.warmup,
        steps=settings.steps,
        outcome=model.CommandOutcome(
            _shown(outcome.command),
            outcome.status,
            outcome.why,
            outcome.duration,
            _shown(outcome.last_lines),
            outcome.standstill,
        ),
        processes=[one.process for one in whole],
        trainers=ranks,
        makers=[one.producer for one in whole if one.process.role == "worker" or one.producer.batches.index],
        remote=merge_remote([remote for one in whole for remote in one.remote()]),
        machines=list(machines),
        notes=[
            *(replace(note, text=_shown([note.text])[0]) for note in notes),
            *(note for one in whole for note in one.notes),
            *(
                model.SessionNote("empty", f"{path.name}: no process's first line; what it observed is lost")
                for path, one in found
                if one is None
            ),
            *(model.SessionNote("hook-off", _why_failed(path)) for path in unstarted),
            *replay_notes,
        ],
    )


def _why_failed(path: Path) -> str:
    """Return why a probe did not start, by the file that it left."""
    last = path.read_text(errors="replace").strip().splitlines()[-1:]
    return f"The probe of process {path.stem.removeprefix('failed-')} did not start: {_shown(last or ['?'])[0]}"


def _shown(texts: Sequence[str]) -> list[str]:
    """Return texts as Unicode without credentials, searched as one: an option's value may be the next text."""
    between = "\x1f"  # whitespace for a pattern, and in no text
    whole = between.join(texts).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return without_credentials(whole).split(between) if len(texts) else []


class FailedReplay(NamedTuple):
    """Failure of a run by the script's own error while its steps were repeated on cached batches."""

    why: str
    processes: tuple[int, ...] = ()
    """Pids of the processes that ended so."""

    @classmethod
    def of(cls, outcome: model.CommandOutcome, processes: Iterable[model.ProbedProcess]) -> FailedReplay | None:
        """Return the failure of a run; None if it did not fail in a window of cached batches."""
        windows = [(one, one.facts.get("facts", {}).get("window")) for one in processes]
        failed = [one for one, window in windows if window == REPLAY]
        if outcome.why != "failed" or not failed:
            return None
        errors = [one.error.strip().splitlines()[-1] for one in failed if one.error]
        return cls(errors[0] if errors else f"exit status {outcome.status}", tuple(one.pid for one in failed))

    @property
    def text(self) -> str:
        return f"The script ended by {self.why} on repeated batches."

    @property
    def note(self) -> model.SessionNote:
        """Note about this run, for a later run."""
        return model.SessionNote("no-replay", f"The run was only observed. {self.text}")


def _replayed_outcome(
    outcome: model.CommandOutcome, whole: Sequence[ProcessEvidence]
) -> tuple[model.CommandOutcome, list[model.SessionNote]]:
    """Return the outcome by the evidence, and notes of processes that failed on cached batches."""
    if outcome.why != "interrupted" and any(one.process.ended == "steps" for one in whole):
        return replace(outcome, why="steps"), []
    failed = FailedReplay.of(outcome, [one.process for one in whole])
    if failed is None:
        return outcome, []
    text = failed.text
    ended = [one for one in whole if one.process.pid in failed.processes]
    if any(window.name == REPLAY for one in ended for window in one.trainer.windows):
        outcome = replace(outcome, why="steps")
        text += " All steps that were asked for had been observed by then."
    return outcome, [model.SessionNote("replay-failed", text, pid) for pid in failed.processes]
