"""The lines of one evidence file, whatever state its process left it in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from headrace.doctor.session import evidence_records

_decode = msgspec.json.Decoder(evidence_records.ANY).decode
_kinds = {kind.__struct_config__.tag for kind in evidence_records.KINDS}


@dataclass
class Lines:
    """What could be read of one file, in its order."""

    evidence_records: list[evidence_records.Record] = field(default_factory=list)
    bytes: int = 0
    damaged: int = 0
    """Lines that are no record: a process was killed, or its disk filled up, in the middle of one."""


def read_lines(path: Path) -> Lines:
    """Reads a file. Kinds of record that this version does not know, a newer probe's, are passed over."""
    data = path.read_bytes()
    lines = Lines(bytes=len(data))
    whole, _, cut = data.rpartition(b"\n")
    lines.damaged = 1 if cut else 0
    lines.records = list(_records(whole.splitlines(), lines))
    return lines


def _records(texts: list[bytes], lines: Lines) -> Iterator[evidence_records.Record]:
    for text in texts:
        try:
            yield _decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            lines.damaged += not _is_newer(text)


def _is_newer(text: bytes) -> bool:
    """Whether a line that is none of our records is one of a kind that we do not know."""
    try:
        kind = msgspec.json.decode(text)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError):
        return False
    return isinstance(kind, str) and kind not in _kinds
