"""Session on disk: its folder with settings and evidence, and its JSON document (docs/doctor/internals.md)."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headrace.doctor.probe import ProbeSettings, SessionClock, boot_id
from headrace.doctor.session.model import FORMAT, VERSION, Session
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
    """Create a session's temporary folder and write its settings: those `given`, as `ProbeSettings` names them.

    A setting of None has its default. Raises UsageError if the folder cannot be created.
    """
    path = _new_folder()
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


def _new_folder() -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix="headrace-doctor-"))
    except OSError as error:
        raise UsageError(
            f"expected a folder for the evidence, got none ({error.strerror}: {error.filename}); set TMPDIR"
        ) from error


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
    """Read the output of `encode_session` of this version.

    Raises SessionError, in which `where` names the document.
    """
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
