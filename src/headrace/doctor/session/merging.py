"""Merge sessions that doctors on several nodes wrote for one training run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass
from statistics import median
from typing import Any

from headrace.doctor.session.declaring import PID, TIME, marks_of
from headrace.doctor.session.merged_reads import joined_remote
from headrace.doctor.session.model import Session
from headrace.errors import SessionError


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
        _renumber(other, _pids(whole))
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


def _renumber(session: Session, used: set[int]) -> None:
    """Renumber processes with a pid that another node also uses."""
    own = _pids(session)
    free = max(used | own, default=0) + 1
    new = {pid: free + place for place, pid in enumerate(sorted(own & used - {0, 1}))}
    _change(session, PID, lambda pid: new.get(pid, pid))
    for machine in session.machines:
        machine.processes = {new.get(pid, pid): figures for pid, figures in machine.processes.items()}


def _pids(session: Session) -> set[int]:
    found: set[int] = set()

    def add(pid: int) -> int:
        found.add(pid)
        return pid

    _change(session, PID, add)
    return found


def _clock_ahead(first: Session, second: Session) -> int:
    """Return how far the second session's clock is ahead, from the ends of common steps; 0 without common steps."""
    ends = [
        dict(zip(one.trainers[0].steps.number, one.trainers[0].steps.end, strict=True)) if one.trainers else {}
        for one in (first, second)
    ]
    both = ends[0].keys() & ends[1].keys()
    return round(median(ends[1][number] - ends[0][number] for number in both)) if both else 0


def _shift(session: Session, ahead: int) -> None:
    """Move every time in a session back by `ahead`."""
    _change(session, TIME, lambda time: time - ahead)
    for trainer in session.trainers:
        steps = trainer.steps
        steps.spans = [[(kind, start - ahead, us) for kind, start, us in spans] for spans in steps.spans]


def _change(value: Any, mark: str, change: Callable[[int], int]) -> None:
    """Change every value with a mark in a session, or in a part of one."""
    marks = marks_of(type(value))
    for field in fields(value):
        held = getattr(value, field.name)
        if marks[field.name] == mark:
            many = held if isinstance(held, list) else [held]
            changed = [None if one is None else change(one) for one in many]
            setattr(value, field.name, changed if isinstance(held, list) else changed[0])
        else:
            for inner in held if isinstance(held, list) else [held]:
                if is_dataclass(inner):
                    _change(inner, mark, change)
