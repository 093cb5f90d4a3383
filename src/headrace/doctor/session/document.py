"""A session as one JSON document: docs/doctor/session.md."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from headrace.doctor.session.model import FORMAT, VERSION, Session
from headrace.doctor.session.tables import first_fault
from headrace.errors import SessionError

_Kind = TypeVar("_Kind")


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0


def encode(session: Session) -> bytes:
    """The document. The same session gives the same bytes."""
    return msgspec.json.encode(session)


def decode(data: bytes, *, where: str = "the document") -> Session:
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
