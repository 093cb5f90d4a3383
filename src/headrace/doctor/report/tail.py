"""Follows evidence files while they grow, each byte read once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MOST_BYTES_AT_ONCE = 4 << 20
"""Of one file: what a first look at a long run leaves over is read at the next."""

Record = list[Any]


@dataclass
class TailedProcess:
    """One evidence file: its texts by number, and how far it has been read."""

    path: Path
    names: dict[int, str] = field(default_factory=dict)
    offset: int = 0

    def new_records(self) -> Iterator[Record]:
        """Whole lines that have come since the last call; `name` records go into `names`."""
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            data = file.read(MOST_BYTES_AT_ONCE)
        whole = data[: data.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.splitlines():
            record = _parsed(line)
            if record[:1] == ["name"] and len(record) == 3:
                self.names[record[1]] = record[2]
            elif record:
                yield record


def take_in(records: Iterable[tuple[TailedProcess, Record]], take: Callable[[TailedProcess, Record], None]) -> None:
    """Each by itself. One of a shape that is not known is left out: what is shown for a moment is no evidence."""
    for process, record in records:
        try:
            take(process, record)
        except (AttributeError, LookupError, TypeError, ValueError):
            continue


class Tail:
    """All evidence files of a folder, those included that come later."""

    def __init__(self, evidence: Path) -> None:
        self._evidence = evidence
        self._processes: dict[str, TailedProcess] = {}

    def new_records(self) -> Iterator[tuple[TailedProcess, Record]]:
        """A folder or file that is not there (any more) has nothing new."""
        try:
            paths = sorted(self._evidence.glob("*.jsonl"))
        except OSError:
            return
        for path in paths:
            process = self._processes.setdefault(path.name, TailedProcess(path))
            try:
                yield from ((process, record) for record in process.new_records())
            except OSError:
                continue


def _parsed(line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        return []
    return record if isinstance(record, list) else []
