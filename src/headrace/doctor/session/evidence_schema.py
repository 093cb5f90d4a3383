"""The schema of evidence: each record's kind, fields, order, types and units, described once.

An evidence file holds one JSON array a line: the kind, then the fields of the class below in their order. The probe
writes plain tuples, which a test compares with these classes; the doctor's reader decodes lines as them.
docs/doctor/evidence.md explains their fields. Those that have a default were appended later, or are left out where
there is nothing to say.
"""

from __future__ import annotations

from typing import Any

import msgspec

# The aliases below are the units of fields.
Time = int
"""Microseconds on the session's clock."""
Duration = int
"""Microseconds."""
Tenths = int
"""Tenths of a microsecond."""
Bytes = int
NameNumber = int
"""Number of a text that a `name` record of the same file gives."""
Flag = int
"""0 or 1."""
Facts = dict[str, Any]
StageRow = tuple[NameNumber, int, Duration, Duration]
"""Stage, calls, wall time and CPU time, without the stages inside it."""
NO_ROWS: Any = []
"""Default of a field that lists something. msgspec gives each record its own."""
RECORDS: dict[str, type[EvidenceRecord]] = {}
"""All kinds of record, in the order in which they are described."""


def _kind(name: str) -> str:
    return name.removesuffix("Record").lower()


class EvidenceRecord(msgspec.Struct, array_like=True, tag_field="kind", tag=_kind):
    """One line of an evidence file. Its kind is the name of its class: `step` for a `StepRecord`."""

    def __init_subclass__(cls) -> None:
        RECORDS[_kind(cls.__name__)] = cls


# Every process.


class ProcessRecord(EvidenceRecord):
    """First line of a file: the process that it is of, and when the probe began in it."""

    t: Time
    facts: Facts


class NameRecord(EvidenceRecord):
    """Text that later records refer to by its number."""

    number: NameNumber
    text: str


class TorchRecord(EvidenceRecord):
    """Import of torch: its version, and CUDA's."""

    t: Time
    facts: Facts


class FactsRecord(EvidenceRecord):
    """Facts that only the process itself knows: threads, memory of the device, warm-up steps."""

    t: Time
    facts: Facts


class NoteRecord(EvidenceRecord):
    """Something that the report says."""

    t: Time
    code: str
    text: str


class AppliedRecord(EvidenceRecord):
    """Remedy that took effect, in `count` places so far; with 0, why it did not."""

    t: Time
    key: str
    count: int
    text: str


class ErrorRecord(EvidenceRecord):
    """Exception that ended the process: its traceback."""

    t: Time
    text: str


class StackRecord(EvidenceRecord):
    """Stack of a batch that hangs."""

    t: Time
    what: str
    text: str


class EndRecord(EvidenceRecord):
    """Orderly end of the process: `exit`, or `steps` where the doctor ended the run."""

    t: Time
    reason: str


class GcRecord(EvidenceRecord):
    """Full garbage collections since the last such record: how many, their time, and that of the longest."""

    t: Time
    count: int
    spent: Duration
    longest: Duration


# A process that trains.


class LoaderRecord(EvidenceRecord):
    """DataLoader, or another source of batches, at its first iteration."""

    loader: int
    t: Time
    facts: Facts


class PassRecord(EvidenceRecord):
    """One `iter(loader)`, from its call until it returned."""

    number: int
    loader: int
    t: Time
    end_t: Time
    epoch: int
    pids: list[int]


class GetRecord(EvidenceRecord):
    """Batch that the training thread received; `bytes` and `shape` are those of its tensors."""

    pass_: int
    index: int
    start: Time
    duration: Duration
    arrived: Time | None = None
    unpickle: Duration | None = None
    pin_start: Time | None = None
    pin: Duration | None = None
    bytes: Bytes | None = None
    shape: NameNumber | None = None
    unpickle_cpu: Duration | None = None
    others_cpu: Duration | None = None


class FetchRecord(GetRecord):
    """Batch that no step waited for."""


class DrainedRecord(GetRecord):
    """Batch that the window `drain` took."""


class PaddingRecord(EvidenceRecord):
    """Batch of sequences: rows, tokens a row, all tokens that are no padding, and the most of these in a row."""

    pass_: int
    index: int
    rows: int
    width: int
    filled: int
    longest: int


class ReplayedRecord(EvidenceRecord):
    """Copy of a cached batch, in place of one of that pass."""

    pass_: int
    start: Time
    duration: Duration


class WindowRecord(EvidenceRecord):
    """Window of a measured run: its first step, its steps, and how many of these settle."""

    name: str
    first: int
    steps: int
    settling: int
    t: Time
    end_t: Time


class FeedRecord(EvidenceRecord):
    """Figures that a loader of Headrace reports of itself, from the start of its pass."""

    pass_: int
    t: Time
    facts: Facts


class LastRecord(EvidenceRecord):
    """The `next()` that found the end of a pass."""

    pass_: int
    t: Time
    duration: Duration


class StepRecord(EvidenceRecord):
    """Optimizer step; `spans` are kind, offset from `start`, and duration, and `probe` is the probe's own cost."""

    number: int
    start: Time
    end: Time
    spans: list[tuple[str, Duration, Duration]] = NO_ROWS
    probe: Tenths | float | None = None
    cpu: Duration | None = None
    delay: Duration | None = None


class RestRecord(EvidenceRecord):
    """Steps that were not measured, so that observation stays cheap."""

    number: int
    t: Time
    end_t: Time
    steps: int
    probe: Tenths | float


class DeviceRecord(EvidenceRecord):
    """The GPU's view of a step: a letter for each mark, and its distance from the mark before."""

    number: int
    kinds: str
    gaps: list[Tenths]


class ReadyRecord(EvidenceRecord):
    """Moment at which this rank's own gradients were done."""

    number: int
    t: Time


class DigestRecord(EvidenceRecord):
    """Digests of a batch's tensors and of its keys, and a few values of each tensor."""

    pass_: int
    content: str
    keys: str | None = None
    sketches: list[list[float]] = NO_ROWS
    tensors: list[tuple[str, float | None, float | None, list[float]]] = NO_ROWS


class LoopRecord(EvidenceRecord):
    """Time by line of the user's code while the training thread worked on batches, since the last such record."""

    t: Time
    counts: list[tuple[NameNumber, Duration]]


class CallsRecord(EvidenceRecord):
    """Calls of the loop in as many watched steps since the last such record.

    `calls` are what, place in the user's code (-1 without one), whether it waits for the device, calls and time.
    """

    t: Time
    steps: int
    calls: list[tuple[NameNumber, int, Flag, int, Duration]]


class CollectiveRecord(EvidenceRecord):
    """Synchronous collective call within a step."""

    step: int
    start: Time
    duration: Duration
    name: NameNumber
    bytes: Bytes | None = None


# A process that produces batches.


class WorkerRecord(EvidenceRecord):
    """Start of a worker."""

    t: Time
    facts: Facts


class BatchRecord(EvidenceRecord):
    """Batch: its index came at `start`, it was collated at `fetched`, and in the pipe at `sent`.

    `beside` are stages of other threads meanwhile; `worked` is what all threads of a ThreadDataLoader took for it.
    """

    epoch: int
    index: int
    start: Time
    fetched: Time
    sent: Time | None = None
    serialise: Duration | None = None
    samples: int | None = None
    stages: list[StageRow] = NO_ROWS
    beside: list[StageRow] = NO_ROWS
    cpu: Duration | None = None
    delay: Duration | None = None
    worked: Duration | None = None


class SlowRecord(EvidenceRecord):
    """One of the slowest samples of the process; `stages` are stage and wall time."""

    epoch: int
    index: int
    key: str
    wall: Duration
    stages: list[tuple[NameNumber, Duration]] = NO_ROWS
    cpu: Duration | None = None


class LookRecord(EvidenceRecord):
    """Sample that was compared with itself; `stages` are stage, whether it drew, and whether it gave the same."""

    epoch: int
    index: int
    stages: list[tuple[NameNumber, Flag, Flag | None]]
    drew: Flag
    same: Flag | None = None
    takes: list[str] = NO_ROWS


class SampleRecord(EvidenceRecord):
    """Sample that was looked at: calls of libraries in the order in which they began.

    `calls` are stage, place in the user's code (-1 without one) and facts.
    """

    epoch: int
    index: int
    key: str
    wall: Duration
    calls: list[tuple[NameNumber, int, Facts]] = NO_ROWS


class CollatedRecord(SampleRecord):
    """Batch as collate made it of its samples, with its values.

    `output` are path, kind, shape, dtype, and the least and greatest number.
    """

    output: list[tuple[str, str, list[int] | None, str | None, float | int | None, float | int | None]] = NO_ROWS


class LinesRecord(EvidenceRecord):
    """Time by line of the user's code, since the last such record."""

    t: Time
    counts: list[tuple[NameNumber, Duration]]


class OpenedRecord(EvidenceRecord):
    """Files opened since the last such record.

    `files` are path and opens; `folders` are path, opens, whether it stands for all beneath it, endings and hashes.
    """

    t: Time
    files: list[tuple[NameNumber, int]]
    folders: list[tuple[NameNumber, int, Flag, list[str], list[int]]]
    rest: int = 0


class RemoteRecord(EvidenceRecord):
    """Requests to stores since the last such record, and batches made meanwhile.

    `stores` are store, requests, failed, bytes, time until answers began, requests by class of that time, and hashes.
    """

    t: Time
    batches: int
    stores: list[tuple[NameNumber, int, int, Bytes, Duration, list[tuple[int, int]], list[int]]]


class ProbeRecord(EvidenceRecord):
    """Cost of the probe in this process so far."""

    t: Time
    us: Duration
