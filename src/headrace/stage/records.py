"""What a journal says, line by line: JSON, one object a line. Nothing read from it is trusted.

Each object ends in `"check"`, the CRC-32 of the line as it is without that. Lines of the first version had none: where
a journal begins as such, they are read as they are.

{"format": "headrace stage 2", "sources": [["name", "/path"], …], "part_bytes": 67108864, "made": true}
{"folder": "name"}                                                        was made
{"file": "name/path", "size": 5, "mtime_ns": 7, "crc32": [1]}             complete, read back, one sum a part
{"part": "name/path", "size": 5, "mtime_ns": 7, "number": 0, "crc32": 1}  of a file that is not complete yet
{"gone": "name/path"}                                                     was removed, as the source is gone
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

FORMAT = "headrace stage 2"
_WITHOUT_CHECKS = "headrace stage 1"
_CHECK = re.compile(rb', "check": "([0-9a-f]{8})"}')


class DamagedJournalError(Exception):
    """What the journal says cannot be; the text says what."""


@dataclass(frozen=True)
class Record:
    """A copy that is complete."""

    path: bytes
    size: int
    mtime_ns: int
    sums: tuple[int, ...]
    """CRC-32 of each part of the source's bytes."""

    def line(self) -> bytes:
        return _line(
            {"file": os.fsdecode(self.path), "size": self.size, "mtime_ns": self.mtime_ns, "crc32": list(self.sums)}
        )


@dataclass(frozen=True)
class PartRecord:
    path: bytes
    size: int
    mtime_ns: int
    number: int
    sum: int

    def line(self) -> bytes:
        return _line(
            {
                "part": os.fsdecode(self.path),
                "size": self.size,
                "mtime_ns": self.mtime_ns,
                "number": self.number,
                "crc32": self.sum,
            }
        )


@dataclass(frozen=True)
class Gone:
    path: bytes

    def line(self) -> bytes:
        return _line({"gone": os.fsdecode(self.path)})


@dataclass(frozen=True)
class Made:
    """A folder."""

    path: bytes

    def line(self) -> bytes:
        return _line({"folder": os.fsdecode(self.path)})


@dataclass(frozen=True)
class Header:
    sources: tuple[tuple[str, str], ...]
    """Name and path of each."""
    part_bytes: int
    made: bool
    """Whether the folder of copies was not there before."""

    def line(self) -> bytes:
        sources = [list(one) for one in self.sources]
        return _line({"format": FORMAT, "sources": sources, "part_bytes": self.part_bytes, "made": self.made})


Line: TypeAlias = Record | PartRecord | Gone | Made


@dataclass
class Known:
    """What a journal says in all."""

    header: Header | None = None
    files: dict[bytes, Record] = field(default_factory=dict)
    parts: dict[bytes, dict[int, PartRecord]] = field(default_factory=dict)
    """Of files that are not complete, by path and number."""
    folders: set[bytes] = field(default_factory=set)

    def add(self, record: Line) -> None:
        match record:
            case Record():
                self.files[record.path] = record
                self.parts.pop(record.path, None)
            case PartRecord():
                self.parts.setdefault(record.path, {})[record.number] = record
            case Made():
                self.folders.add(record.path)
            case Gone():
                self.files.pop(record.path, None)


def parse(lines: Sequence[bytes]) -> Known:
    """Raises DamagedJournalError."""
    known = Known()
    checked = True
    for number, line in enumerate(lines, 1):
        found, has_check = _read(line, number)
        if number == 1:
            known.header, checked = _header(found)
        if checked and not has_check:
            raise DamagedJournalError(f"line {number:,} has no checksum")
        if number > 1:
            known.add(_record(found, number))
    return known


def _read(line: bytes, number: int) -> tuple[Any, bool]:
    """Return what the line says, and whether it has a checksum. Raises DamagedJournalError where that does not fit."""
    check = _CHECK.search(line, max(0, len(line) - _CHECK_BYTES))
    bare = line if check is None else line[: check.start()] + b"}"
    if check is not None and check[1] != _sum(bare):
        raise DamagedJournalError(f"line {number:,} does not fit its checksum")
    try:
        return json.loads(bare), check is not None
    except (ValueError, RecursionError):
        raise DamagedJournalError(f"line {number:,} is no JSON") from None


def _header(found: Any) -> tuple[Header, bool]:
    """Return the header, and whether each line has a checksum."""
    match found:
        case {"format": str(name)} if name not in (FORMAT, _WITHOUT_CHECKS):
            raise DamagedJournalError(f"it is of another version, {name!r}; this one writes {FORMAT!r}")
        case {"format": str(name), "sources": [*sources], "part_bytes": int(part_bytes), "made": bool(made)}:
            if part_bytes > 0 and all(isinstance(one, list) and len(one) == 2 and _all_texts(one) for one in sources):
                return Header(tuple((one[0], one[1]) for one in sources), part_bytes, made), name == FORMAT
    raise DamagedJournalError("its first line is no header")


def _record(found: Any, line: int) -> Line:
    match found:
        case {"file": str(path), "size": int(size), "mtime_ns": int(mtime_ns), "crc32": [*sums]} if _all_ints(sums):
            return Record(_path(path, line), size, mtime_ns, tuple(sums))
        case {
            "part": str(path),
            "size": int(size),
            "mtime_ns": int(mtime_ns),
            "number": int(number),
            "crc32": int(sum_),
        }:
            return PartRecord(_path(path, line), size, mtime_ns, number, sum_)
        case {"folder": str(path)}:
            return Made(_path(path, line))
        case {"gone": str(path)}:
            return Gone(_path(path, line))
    raise DamagedJournalError(f"line {line:,} is no record")


def _path(text: str, line: int) -> bytes:
    """Relative, and staying where it begins. Raises DamagedJournalError."""
    try:
        path = os.fsencode(text)
    except UnicodeEncodeError:
        path = b""
    if b"\0" in path or any(part in (b"", b".", b"..") for part in path.split(b"/")):
        raise DamagedJournalError(f"line {line:,} names {text!r}, which no copy is called")
    return path


def _all_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _all_ints(values: Iterable[object]) -> bool:
    return all(isinstance(value, int) for value in values)


def _line(record: dict[str, Any]) -> bytes:
    bare = json.dumps(record).encode()
    return bare[:-1] + b', "check": "' + _sum(bare) + b'"}\n'


def _sum(bare: bytes) -> bytes:
    return b"%08x" % zlib.crc32(bare)


_CHECK_BYTES = len(b', "check": "00000000"}')
