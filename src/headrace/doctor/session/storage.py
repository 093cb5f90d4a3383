"""A session on disk: its folder with settings and evidence, and its JSON document."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace.doctor.attach.hands_off import holds_files
from headrace.doctor.probe.settings import FILE, ProbeSettings, SessionClock, boot_id
from headrace.doctor.session.model import FORMAT, VERSION, BatchProducer, Machine, Session, Trainer
from headrace.errors import SessionError, UsageError

# -- from doctor/folder.py: The folder of one diagnosis: settings, evidence and, where it is kept, the session.


SCRATCH = "scratch"
"""Folder of a session whose run is undone."""

SESSION_FILE = "session.json"


@dataclass
class SessionFolder:
    """Where the probes write. `is_kept` may become true while it is open: then it stays."""

    path: Path
    settings: ProbeSettings
    is_kept: bool

    @property
    def clock(self) -> SessionClock:
        return SessionClock(self.settings)


@contextmanager
def session_folder(
    keep: Path | None = None,
    *,
    observe: bool = False,
    warmup: int | None = None,
    steps: int | None = None,
    ranges: bool = False,
    replay: int = 0,
    drain_s: float = 0.0,
    digests: int = 0,
) -> Iterator[SessionFolder]:
    """A folder with its settings written. A temporary one, without `keep`, is removed at the end, unless it holds files
    of the user's that are nowhere else.

    Raises UsageError where `keep` holds a session already, or cannot be made.
    """
    path = _temporary() if keep is None else _made_folder(keep)
    settings = _new_settings(
        path,
        observe=observe,
        warmup=warmup,
        steps=steps,
        ranges=ranges,
        replay=replay,
        drain_s=drain_s,
        digests=digests,
    )
    folder = SessionFolder(path, settings, is_kept=keep is not None)
    try:
        _write_settings(settings)
        yield folder
    finally:
        folder.is_kept |= holds_files(path)
        if not folder.is_kept:
            shutil.rmtree(path, ignore_errors=True)  # a process that outlives the command may write there still


def _temporary() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="headrace-doctor-"))
    except OSError as error:
        raise UsageError(
            f"expected a folder for the evidence, got none ({error.strerror}: {error.filename}); "
            "set TMPDIR, or give --keep"
        ) from error


def _write_settings(settings: ProbeSettings) -> None:
    try:
        settings.write()
    except OSError as error:
        raise UsageError(
            f"expected a folder that takes the evidence, got {settings.folder} ({error.strerror}); "
            "make room there, set TMPDIR, or give --keep"
        ) from error


def _made_folder(keep: Path) -> Path:
    if (keep / FILE).exists():
        raise UsageError(f"--keep: expected a new folder, got {keep}, which holds a session; name another or remove it")
    try:
        keep.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--keep: expected a folder that can be made, got {keep} ({error.strerror})") from error
    return keep.resolve()


def _new_settings(path: Path, *, observe: bool, steps: int | None, **asked: Any) -> ProbeSettings:
    settings = ProbeSettings(
        folder=str(path),
        origin_us=time.monotonic_ns() // 1000,
        origin_wall_us=time.time_ns() // 1000,
        boot_id=boot_id(),
        observe=observe,
        scratch="" if observe else str(path / SCRATCH),
        **asked,
    )
    return settings if steps is None else ProbeSettings(**(vars(settings) | {"steps": steps}))


# -- from doctor/session/tables.py: What the types of a session do not say of its tables: columns are equally long,
# and numbers refer to something.


MAY_BE_EMPTY = {"beside", "cpu", "delay", "unpickle_cpu", "worked"}
"""Columns that are left out where no row has anything, or by an earlier doctor."""


def first_fault(session: Session) -> str | None:
    """What was expected, got, and where, of the first table that is none; None where all are whole."""
    return next(_faults(session), None)


def _faults(session: Session) -> Iterator[str]:
    for place, trainer in enumerate(session.trainers):
        yield from _of_trainer(trainer, f"$.trainers[{place}]")
    for place, maker in enumerate(session.makers):
        yield from _of_maker(maker, f"$.makers[{place}]")
    for place, machine in enumerate(session.machines):
        yield from _of_machine(machine, f"$.machines[{place}]")


def _of_trainer(trainer: Trainer, where: str) -> Iterator[str]:
    for name in ("steps", "gets", "fetches", "padding", "collectives"):
        yield from _uneven(_columns(getattr(trainer, name)), f"{where}.{name}")
    for name in ("gets", "fetches"):
        shapes = (shape for shape in getattr(trainer, name).shape if shape is not None)
        yield from _outside(shapes, len(trainer.shapes), "shapes", f"{where}.{name}.shape")


def _of_maker(maker: BatchProducer, where: str) -> Iterator[str]:
    yield from _uneven(_columns(maker.batches), f"{where}.batches")
    for name in ("stages", "beside"):
        stages = (stage for row in getattr(maker.batches, name) for stage, *_ in row)
        yield from _outside(stages, len(maker.stages), "stages", f"{where}.batches.{name}")
    slow = (stage for sample in maker.slow for stage, _ in sample.stages)
    yield from _outside(slow, len(maker.stages), "stages", f"{where}.slow")
    looked = (one.stage for sample in maker.looks for one in sample.stages)
    yield from _outside(looked, len(maker.stages), "stages", f"{where}.looks")


def _of_machine(machine: Machine, where: str) -> Iterator[str]:
    yield from _uneven({"time": machine.time, **machine.columns}, where)


def _columns(table: Any) -> dict[str, list[Any]]:
    columns = {column.name: getattr(table, column.name) for column in fields(table)}
    return {name: values for name, values in columns.items() if values or name not in MAY_BE_EMPTY}


def _uneven(columns: dict[str, list[Any]], where: str) -> Iterator[str]:
    (first, rows), *others = ((name, len(values)) for name, values in columns.items())
    for name, count in others:
        if count != rows:
            yield f"expected columns of equal length, got {rows} of `{first}` and {count} of `{name}` - at `{where}`"


def _outside(numbers: Iterable[int], count: int, what: str, where: str) -> Iterator[str]:
    for number in numbers:
        if not 0 <= number < count:
            yield f"expected numbers below {count} ({what}), got {number} - at `{where}`"


# -- from doctor/session/document.py: A session as one JSON document: docs/doctor/session.md.


_Kind = TypeVar("_Kind")


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


def encode_session(session: Session) -> bytes:
    """The document. The same session gives the same bytes."""
    return msgspec.json.encode(session)


def decode_session(data: bytes, *, where: str = "the document") -> Session:
    """Reads what `encode` wrote; fields that a newer doctor added are ignored.

    `where` names the document in errors, which are `SessionError`.
    """
    _check(_decode(data, _Head, where), where)
    session = _decode(data, Session, where)
    fault = first_fault(session)
    if fault is not None:
        raise SessionError(f"{where}: {fault}; the file was changed after it was written")
    return session


def _check(head: _Head, where: str) -> None:
    if head.format != FORMAT:
        got = f'"format": {head.format!r}' if head.format else "no `format`"
        raise SessionError(
            f'{where}: expected a session of the doctor\'s ("format": {FORMAT!r}), got {got}; '
            "give the session.json that `headrace doctor` wrote"
        )
    if not 1 <= head.version <= VERSION:
        raise SessionError(
            f"{where}: expected a session of version 1 to {VERSION}, got version {head.version}; "
            "read it with the headrace that wrote it, or a newer one"
        )


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
