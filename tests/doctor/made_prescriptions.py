"""Prescriptions of made runs, on a machine and with files of the test's own."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from made_sessions import HOST, MadeRun, field_names, made_session, replace

from headrace.doctor.causes import Prescription, Remedy, diagnose, prescribe
from headrace.doctor.edits.script_source import ScriptSources
from headrace.doctor.session.model import Machine, Session
from headrace.doctor.session.trainers import MeasuredWindow, TrainerPass

GB = 10**9
ROOMY: dict[str, Any] = {"cores": 8, "memory_bytes": 64 * GB, "shm_bytes": 16 * GB}
COLUMNS = {"memory_available_bytes": 32.0 * GB, "shm_used_bytes": 1.0 * GB}


def made(*runs: MadeRun, facts: Mapping[str, Any] = ROOMY, columns: Mapping[str, float] = COLUMNS) -> Session:
    """A session on one machine whose readings stay as they are."""
    with tempfile.TemporaryDirectory() as folder:
        session = made_session(Path(folder), *runs)
    ends = [trainer.steps.end[-1] for trainer in session.trainers if trainer.steps.end]
    times = [max(ends, default=0) * part // 4 for part in (1, 2, 3)]
    tables: dict[str, list[float | None]] = {name: [value] * 3 for name, value in columns.items()}
    figures = {maker.pid: {"private_bytes_peak": GB // 2} for maker in session.makers if maker.worker is not None}
    session.machines = [Machine(HOST, dict(facts), times, tables, figures)]
    return session


def with_batches(session: Session, shape: str, size: int) -> Session:
    """All batches of that shape and size."""
    for trainer in session.trainers:
        trainer.shapes = [shape]
        trainer.gets.bytes = [size] * len(trainer.gets.bytes)
    return session


def with_gpu(session: Session) -> Session:
    """The trainers computed on one."""
    for process in session.processes:
        process.facts.setdefault("facts", {})["device"] = "NVIDIA H100"
    return session


def with_copies(session: Session, us: int) -> Session:
    """Each step copies its batch to the device for so long, right after it came."""
    for trainer in session.trainers:
        gets = [start + duration for start, duration in zip(trainer.gets.start, trainer.gets.duration, strict=True)]
        for spans, got in zip(trainer.steps.spans, gets, strict=True):
            spans.insert(0, ("h", got, us))
    return session


def replayed(session: Session, step_us: int, steps: int = 12, settling: int = 2) -> Session:
    """With a window of cached batches after its steps, each of which takes so long and receives nothing."""
    session.mode = "measure"
    session.warmup = 0
    for trainer in session.trainers:
        columns, first = trainer.steps, trainer.steps.number[-1] + 1
        begun = now = columns.end[-1]
        trainer.windows = [MeasuredWindow("observe", 0, first, 0, columns.start[0], begun)]
        for number in range(first, first + steps):
            row = {"number": number, "start": now, "end": now + step_us, "spans": []}
            for name in field_names(columns):
                if getattr(columns, name) or name in row:
                    getattr(columns, name).append(row.get(name))
            now += step_us
        trainer.windows.append(MeasuredWindow("replay", first, steps, settling, begun, now))
    return session


def prescribed(session: Session, files: Mapping[str, str] | None = None) -> Prescription:
    """With these files of the user's, by path."""
    sources = ScriptSources((files or {}).get, "/home/ada")
    return prescribe(session, diagnose(session), sources)


def remedy(session: Session, code: str, files: Mapping[str, str] | None = None) -> Remedy:
    """The one with this code, of which there must be one."""
    found = [one for one in prescribed(session, files).remedies if one.code == code]
    assert len(found) == 1, f"expected one {code}, got {found}"
    return found[0]


def helping(session: Session, code: str, files: Mapping[str, str] | None = None) -> Remedy:
    found = remedy(session, code, files)
    assert found.helps, found.why
    return found


def why_not(session: Session, code: str) -> str:
    found = remedy(session, code)
    assert not found.helps
    assert found.prediction is None
    assert found.changes is None
    assert found.edit is None
    return found.why


def is_listed(session: Session, code: str) -> bool:
    return code in [one.code for one in prescribed(session).remedies]


def respawned(run: MadeRun, *, passes: int = 3, start_us: int = 30_000) -> Session:
    """The run again and again, each time with workers of its own that take `start_us` to start."""
    whole, *others = [made(replace(run, begun=start_us)) for _ in range(passes)]
    trainer = whole.trainers[0]
    for number, session in enumerate(others, start=1):
        other, end = session.trainers[0], trainer.steps.end[-1]
        for maker in session.makers:
            maker.pid += 10 * number
            _shift(maker.batches, ("start", "fetched", "sent"), end)
            maker.begun = (maker.begun or 0) + end
        other.steps.spans = [[(kind, at + end, us) for kind, at, us in spans] for spans in other.steps.spans]
        other.steps.number = [row + len(trainer.steps.number) for row in other.steps.number]
        _shift(other.steps, ("start", "end"), end)
        _shift(other.gets, ("start", "arrived"), end)
        other.gets.pass_ = [number] * len(other.gets.pass_)
        _append(trainer.steps, other.steps)
        _append(trainer.gets, other.gets)
        before = trainer.passes[-1]
        before.last_start, before.last = end, 0
        trainer.passes.append(TrainerPass(number, 0, end, end, 0, [maker.pid for maker in session.makers]))
        whole.makers += session.makers
        whole.machines[0].processes |= {maker.pid: {"private_bytes_peak": GB // 2} for maker in session.makers}
    return whole


def _shift(table: Any, columns: tuple[str, ...], us: int) -> None:
    for name in columns:
        setattr(table, name, [None if at is None else at + us for at in getattr(table, name)])


def _append(table: Any, other: Any) -> None:
    for column in field_names(table):
        getattr(table, column).extend(getattr(other, column))
