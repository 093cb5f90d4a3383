"""Records of docs/doctor/evidence.md as msgspec reads them, one JSON array a line.

A newer probe may append fields to a record: they are ignored. Times and durations are microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

import msgspec

# -- from doctor/evidence/records.py: The records of docs/doctor/evidence.md, as msgspec reads them: arrays whose
# first element names the kind.
#
# A newer probe may append fields to a record: they are ignored. Times and durations are microseconds.


class EvidenceRecord(msgspec.Struct, array_like=True, tag_field="kind"):
    """One line of an evidence file."""


class ProcessRecord(EvidenceRecord, tag="process"):
    t: int
    facts: dict[str, Any]


class NameRecord(EvidenceRecord, tag="name"):
    number: int
    text: str


class TorchRecord(EvidenceRecord, tag="torch"):
    t: int
    facts: dict[str, Any]


class FactsRecord(EvidenceRecord, tag="facts"):
    t: int
    facts: dict[str, Any]


class NoteRecord(EvidenceRecord, tag="note"):
    t: int
    code: str
    text: str


class ErrorRecord(EvidenceRecord, tag="error"):
    t: int
    text: str


class StackRecord(EvidenceRecord, tag="stack"):
    t: int
    what: str
    text: str


class EndRecord(EvidenceRecord, tag="end"):
    t: int
    reason: str


class LoaderRecord(EvidenceRecord, tag="loader"):
    loader: int
    t: int
    facts: dict[str, Any]


class PassRecord(EvidenceRecord, tag="pass"):
    number: int
    loader: int
    t: int
    end_t: int
    epoch: int
    pids: list[int]


class GetRecord(EvidenceRecord, tag="get"):
    pass_: int
    index: int
    t: int
    duration: int
    arrived: int | None = None
    unpickle: int | None = None
    pin_t: int | None = None
    pin: int | None = None
    bytes: int | None = None
    shape: int | None = None
    unpickle_cpu: int | None = None


class FetchRecord(GetRecord, tag="fetch"):
    """A batch that no step waited for."""


class PaddingRecord(EvidenceRecord, tag="padding"):
    pass_: int
    index: int
    rows: int
    width: int
    filled: int
    longest: int


class ReplayedRecord(EvidenceRecord, tag="replayed"):
    pass_: int
    t: int
    duration: int


class DrainedRecord(GetRecord, tag="drained"):
    """A batch that was taken to see how fast they come."""


class WindowRecord(EvidenceRecord, tag="window"):
    name: str
    first: int
    steps: int
    settling: int
    t: int
    end_t: int


class LastRecord(EvidenceRecord, tag="last"):
    pass_: int
    t: int
    duration: int


class StepRecord(EvidenceRecord, tag="step"):
    number: int
    t: int
    end_t: int
    spans: list[tuple[str, int, int]] = []
    probe: float | None = None
    cpu: int | None = None
    delay: int | None = None


class RestRecord(EvidenceRecord, tag="rest"):
    number: int
    t: int
    end_t: int
    steps: int
    probe: float


class DeviceRecord(EvidenceRecord, tag="device"):
    number: int
    kinds: str
    gaps: list[int]


class ReadyRecord(EvidenceRecord, tag="ready"):
    number: int
    t: int


class CollectiveRecord(EvidenceRecord, tag="collective"):
    number: int
    t: int
    duration: int
    name: int
    bytes: int | None = None


class DigestRecord(EvidenceRecord, tag="digest"):
    pass_: int
    content: str
    keys: str | None = None
    sketches: list[list[float]] = []


class AppliedRecord(EvidenceRecord, tag="applied"):
    t: int
    key: str
    count: int
    text: str


class WorkerRecord(EvidenceRecord, tag="worker"):
    t: int
    facts: dict[str, Any]


class BatchRecord(EvidenceRecord, tag="batch"):
    epoch: int
    index: int
    t: int
    fetched_t: int
    sent_t: int | None = None
    serialise: int | None = None
    samples: int | None = None
    stages: list[tuple[int, int, int, int]] = []
    beside: list[tuple[int, int, int, int]] = []
    cpu: int | None = None
    delay: int | None = None
    worked: int | None = None


class FeedRecord(EvidenceRecord, tag="feed"):
    pass_: int
    t: int
    facts: dict[str, Any]


class SlowRecord(EvidenceRecord, tag="slow"):
    epoch: int
    index: int
    key: str
    wall: int
    stages: list[tuple[int, int]] = []


class LookRecord(EvidenceRecord, tag="look"):
    epoch: int
    index: int
    stages: list[tuple[int, int, int | None]]
    drew: int
    same: int | None = None
    takes: list[str] = []


class LinesRecord(EvidenceRecord, tag="lines"):
    t: int
    counts: list[tuple[int, int]]


class OpenedRecord(EvidenceRecord, tag="opened"):
    t: int
    files: list[tuple[int, int]]
    folders: list[tuple[int, int, int, list[str], list[int]]]
    rest: int = 0


class ProbeCostRecord(EvidenceRecord, tag="probe"):
    t: int
    us: int


RECORD_KINDS = (
    ProcessRecord, NameRecord, TorchRecord, FactsRecord, NoteRecord, ErrorRecord, StackRecord, EndRecord,
    LoaderRecord, PassRecord, GetRecord, FetchRecord, PaddingRecord, ReplayedRecord, DrainedRecord, WindowRecord,
    LastRecord,
    StepRecord, RestRecord, DeviceRecord, ReadyRecord, CollectiveRecord, DigestRecord, AppliedRecord,
    WorkerRecord, BatchRecord, FeedRecord, SlowRecord, LookRecord, LinesRecord, OpenedRecord, ProbeCostRecord,
)  # fmt: skip
ANY_RECORD: Any = Union[RECORD_KINDS]  # noqa: UP007  (a union of a tuple has no other spelling)


# -- from doctor/evidence/lines.py: The lines of one evidence file, whatever state its process left it in.


_decode = msgspec.json.Decoder(ANY_RECORD).decode
_kinds = {kind.__struct_config__.tag for kind in RECORD_KINDS}


@dataclass
class EvidenceLines:
    """What could be read of one file, in its order."""

    records: list[EvidenceRecord] = field(default_factory=list)
    bytes: int = 0
    damaged: int = 0
    """Lines that are no record: a process was killed, or its disk filled up, in the middle of one."""


def read_evidence_lines(path: Path) -> EvidenceLines:
    """Reads a file. Kinds of record that this version does not know, a newer probe's, are passed over."""
    data = path.read_bytes()
    lines = EvidenceLines(bytes=len(data))
    whole, _, cut = data.rpartition(b"\n")
    lines.damaged = 1 if cut else 0
    lines.records = list(_records(whole.splitlines(), lines))
    return lines


def _records(texts: list[bytes], lines: EvidenceLines) -> Iterator[EvidenceRecord]:
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
