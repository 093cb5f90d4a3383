"""Merge sessions that doctors on several nodes wrote for one training run."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from statistics import median
from typing import Any

from headrace.errors import SessionError

from . import trainers
from .declaring import moments_of
from .merged_reads import joined_remote
from .model import Session


def merged(sessions: Sequence[Session]) -> Session:
    """Merge the sessions of one training's nodes into one session with all ranks, workers and machines.

    The first session provides the clock, the command and its outcome, and the results from after the run (proofs, a
    trial, a survey). The other clocks are aligned by common steps, which end at about the same time on all ranks. A pid
    in use on two nodes is renumbered.

    Raises SessionError for fewer than two sessions, for a repeated rank, and for sessions of different trainings.
    """
    _check(sessions)
    whole = copy.deepcopy(sessions[0])
    for one in sessions[1:]:
        other = copy.deepcopy(one)
        _renumber(other, _used_pids(whole))
        _shift(other, _clock_ahead(whole, other))
        for name in ("processes", "trainers", "makers", "machines", "unreached", "notes"):
            getattr(whole, name).extend(getattr(other, name))
        whole.opened.files += other.opened.files
        whole.opened.folders += other.opened.folders
        whole.opened.rest += other.opened.rest
        whole.remote = joined_remote(whole.remote, other.remote)
    whole.trainers.sort(key=lambda trainer: trainer.rank)
    return whole


def _check(sessions: Sequence[Session]) -> None:
    if len(sessions) < 2:
        raise SessionError("merge: expected the sessions of two nodes or more, got one")
    ranks: dict[int, str] = {}
    for one in sessions:
        hosts = {trainer.host for trainer in one.trainers}
        for trainer in one.trainers:
            if trainer.rank in ranks and ranks[trainer.rank] != trainer.host:
                raise SessionError(
                    f"merge: expected each rank on one node, got rank {trainer.rank} on {ranks[trainer.rank]} and on "
                    f"{trainer.host}: these are sessions of different trainings"
                )
        if hosts & set(ranks.values()):
            raise SessionError(
                f"merge: expected one session a node, got two of {', '.join(sorted(hosts & set(ranks.values())))}"
            )
        ranks |= {trainer.rank: trainer.host for trainer in one.trainers}


def _used_pids(session: Session) -> set[int]:
    return {pid for one in session.processes for pid in (one.pid, one.parent)} | set(_pids_of_makers(session))


def _pids_of_makers(session: Session) -> Iterator[int]:
    for trainer in session.trainers:
        yield trainer.pid
        for one in trainer.passes:
            yield from one.workers
    for maker in session.makers:
        yield maker.pid


def _renumber(session: Session, used: set[int]) -> None:
    """Renumber processes with a pid that another node also uses."""
    own = _used_pids(session)
    free = max(used | own, default=0) + 1
    new = {pid: free + place for place, pid in enumerate(sorted(own & used - {0, 1}))}
    for one in session.processes:
        one.pid, one.parent = new.get(one.pid, one.pid), new.get(one.parent, one.parent)
    for trainer in session.trainers:
        trainer.pid = new.get(trainer.pid, trainer.pid)
        for begun in trainer.passes:
            begun.workers = [new.get(pid, pid) for pid in begun.workers]
    for maker in session.makers:
        maker.pid = new.get(maker.pid, maker.pid)
        maker.trainer = None if maker.trainer is None else new.get(maker.trainer, maker.trainer)
    for machine in session.machines:
        machine.processes = {new.get(pid, pid): figures for pid, figures in machine.processes.items()}
    for missed in session.unreached:
        missed.pid = new.get(missed.pid, missed.pid)
    for note in session.notes:
        note.pid = None if note.pid is None else new.get(note.pid, note.pid)


def _clock_ahead(first: Session, second: Session) -> int:
    """Return how far the second session's clock is ahead, from the ends of common steps; 0 without common steps."""
    ends = [
        dict(zip(one.trainers[0].steps.number, one.trainers[0].steps.end, strict=True)) if one.trainers else {}
        for one in (first, second)
    ]
    both = ends[0].keys() & ends[1].keys()
    return round(median(ends[1][number] - ends[0][number] for number in both)) if both else 0


def _shift(value: Any, ahead: int) -> None:
    """Move every time in a session, or in a part of one, back by `ahead`."""
    names = moments_of(type(value))
    for field in fields(value):
        held = getattr(value, field.name)
        if field.name in names:
            moved = [_earlier(one, ahead) for one in held] if isinstance(held, list) else _earlier(held, ahead)
            setattr(value, field.name, moved)
        else:
            for inner in held if isinstance(held, list) else [held]:
                if is_dataclass(inner):
                    _shift(inner, ahead)
    if isinstance(value, trainers.OptimizerSteps):
        value.spans = [[(kind, start - ahead, us) for kind, start, us in spans] for spans in value.spans]


def _earlier(time: int | None, ahead: int) -> int | None:
    return None if time is None else time - ahead
