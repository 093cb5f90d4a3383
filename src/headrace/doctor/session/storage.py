"""Session on disk (docs/doctor/internals.md), and sessions that several nodes wrote for one training run."""

from __future__ import annotations

import copy
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from headrace.doctor.probe.settings import ProbeSettings, SessionClock, boot_id
from headrace.doctor.session.model import FORMAT, VERSION, Session
from headrace.doctor.session.trainers import PID, TIME, RemoteReads, StoreReads
from headrace.errors import SessionError, UsageError

SCRATCH = "scratch"
"""Subfolder of a measured run's session for what the run writes, but the user does not get."""
SESSION_FILE = "session.json"

_Kind = TypeVar("_Kind")


@dataclass
class SessionFolder:
    """Folder for the probes' output, deleted on close unless `is_kept` is true by then."""

    path: Path
    settings: ProbeSettings
    is_kept: bool = False

    @property
    def clock(self) -> SessionClock:
        return SessionClock(self.settings)

    def begin_again(self, **changes: Any) -> None:
        """Delete the evidence and write settings with `changes` for another run of the command."""
        shutil.rmtree(self.settings.evidence)
        self.settings = replace(self.settings, **_origin(), **changes)
        self.settings.write()


@contextmanager
def session_folder(**given: Any) -> Iterator[SessionFolder]:
    """Create a session's temporary folder with its settings (None: the default). Raises UsageError if it cannot."""
    try:
        path = Path(tempfile.mkdtemp(prefix="headrace-doctor-"))
    except OSError as error:
        where = f"{error.strerror}: {error.filename}"
        raise UsageError(f"expected a folder for the evidence, got none ({where}); set TMPDIR") from error
    known = {name: value for name, value in given.items() if value is not None}
    scratch = "" if known.get("observe") else str(path / SCRATCH)
    settings = ProbeSettings(folder=str(path), **_origin(), boot_id=boot_id(), scratch=scratch, **known)
    folder = SessionFolder(path, settings)
    try:
        try:
            settings.write()
        except OSError as error:
            raise UsageError(
                f"expected a folder that takes the evidence, got {path} ({error.strerror}); "
                "make room there, or set TMPDIR"
            ) from error
        yield folder
    finally:
        if not folder.is_kept:
            shutil.rmtree(path, ignore_errors=True)  # a process that outlives the command may still write to the folder


def _origin() -> dict[str, Any]:
    return {"origin_us": time.monotonic_ns() // 1000, "origin_wall_us": time.time_ns() // 1000}


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


def encode_session(session: Session) -> bytes:
    """Return the session's JSON document. Encoding is deterministic."""
    return msgspec.json.encode(session)


def saved_session(path: Path) -> Session:
    """Read a session file that the doctor wrote. Raises SessionError for other files."""
    try:
        return decode_session(path.read_bytes(), where=str(path))
    except OSError as error:
        raise SessionError(f"expected a session file, got {path} ({error.strerror})") from error


def decode_session(data: bytes, *, where: str = "the document") -> Session:
    """Read the output of `encode_session` of this version. Raises SessionError, in which `where` names the document."""
    head = _decode(data, _Head, where)
    if head.format != FORMAT:
        got = f'"format": {head.format!r}' if head.format else "no `format`"
        raise SessionError(
            f'{where}: expected a session of the doctor\'s ("format": {FORMAT!r}), got {got}; '
            "give the session.json that `headrace doctor` wrote"
        )
    if head.version != VERSION:
        raise SessionError(
            f"{where}: expected a session of version {VERSION}, got version {head.version}; "
            "run the doctor again, or read it with the headrace that wrote it"
        )
    return _decode(data, Session, where)


def _decode(data: bytes, kind: type[_Kind], where: str) -> _Kind:
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        raise SessionError(f"{where}: {_lowered(str(error))}; the file was changed after it was written") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SessionError(
            f"{where}: expected one whole JSON document, got {len(data)} bytes that are none ({_lowered(str(error))}); "
            "the file is damaged or was cut short"
        ) from None


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def merge_remote(reads: Sequence[RemoteReads]) -> RemoteReads:
    """Merge the requests of several processes or nodes, most bytes first."""
    stores: dict[str, StoreReads] = {}
    for store in (store for one in reads for store in one.stores):
        whole = stores.setdefault(store.place, StoreReads(store.place, 0, 0, 0, 0))
        for name in ("requests", "failed", "bytes", "first_us"):
            setattr(whole, name, getattr(whole, name) + getattr(store, name))
    return RemoteReads(sum(one.batches for one in reads), sorted(stores.values(), key=lambda store: -store.bytes))


def merged(sessions: Sequence[Session]) -> Session:
    """Merge the sessions of one training's nodes into one session with all ranks, workers and machines.

    The first session provides the clock, the command and its outcome, and the results from after the run (proofs, a
    trial). The other clocks are aligned by common steps, which end at about the same time on all ranks. A pid
    in use on two nodes is renumbered.

    Raises SessionError for fewer than two sessions, for a repeated rank, and for sessions of different trainings.
    """
    _check(sessions)
    whole = copy.deepcopy(sessions[0])
    for one in sessions[1:]:
        other = copy.deepcopy(one)
        _renumber(other, _pids(whole))
        _shift(other, _clock_ahead(whole, other))
        for name in ("processes", "trainers", "makers", "machines", "notes"):
            getattr(whole, name).extend(getattr(other, name))
    whole.remote = merge_remote([one.remote for one in sessions])
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
    pids: list[int] = []

    def add(pid: int) -> int:
        pids.append(pid)
        return pid

    _change(session, PID, add)
    return set(pids)


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
    hints = get_type_hints(type(value), include_extras=True)
    for name in value.__struct_fields__:
        held = getattr(value, name)
        many = held if isinstance(held, list) else [held]
        if _is_marked(hints[name], mark):
            changed = [None if one is None else change(one) for one in many]
            setattr(value, name, changed if isinstance(held, list) else changed[0])
        else:
            for inner in many:
                if isinstance(inner, msgspec.Struct):
                    _change(inner, mark, change)


def _is_marked(annotation: Any, mark: str) -> bool:
    """Return True if a type, or a type within it, is `Annotated` with the mark."""
    return mark in getattr(annotation, "__metadata__", ()) or any(_is_marked(it, mark) for it in get_args(annotation))
