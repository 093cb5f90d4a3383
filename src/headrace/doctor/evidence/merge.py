"""The evidence of many processes, as one session."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from headrace.doctor.evidence.lines import read_lines
from headrace.doctor.evidence.opened import opened
from headrace.doctor.evidence.process import ProcessEvidence
from headrace.doctor.probe.settings import Settings
from headrace.doctor.session.model import Machine, Maker, Note, Outcome, Session, Trainer, Unreached


def read_session(
    folder: Path,
    *,
    outcome: Outcome,
    mode: str,
    created: str,
    headrace: str,
    machines: Sequence[Machine] = (),
    unreached: Sequence[Unreached] = (),
    notes: Sequence[Note] = (),
) -> Session:
    """Merges every evidence file of a session's folder, whose settings.json says what was asked for.

    All files are on the session's clock already. Those that hold no process's first line are counted in a note.
    """
    settings = Settings.read(str(folder))
    with _no_collection():
        found = [
            (path, ProcessEvidence.of(read_lines(path), settings.most_bytes))
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
        makers=_makers(whole, trainers),
        opened=opened(one.opened for one in whole),
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


def _makers(whole: Iterable[ProcessEvidence], trainers: Iterable[Trainer]) -> list[Maker]:
    makers = [one.maker.finished(one.process.pid, one.process.host) for one in whole if one.maker.is_one]
    served = {(trainer.host, pid): trainer.pid for trainer in trainers for one in trainer.passes for pid in one.workers}
    for maker in makers:
        maker.trainer = served.get((maker.host, maker.pid), maker.trainer)
    return makers


def _empty(paths: Iterable[Path]) -> list[Note]:
    return [Note("empty", f"{path.name}: no process's first line; what it observed is lost") for path in paths]
