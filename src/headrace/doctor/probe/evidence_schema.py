"""The schema of evidence: each record's kind, fields, order, types and units, described once.

An evidence file holds one JSON array a line: the kind, then the fields of the class below in their order. The probe
writes plain tuples, which a test compares with this schema; the doctor's reader and docs/doctor/evidence.md follow it.
Fields that have a default were appended later, or are left out where there is nothing to say.
"""

from __future__ import annotations

from typing import Any, ClassVar

VERSION = 1
"""Version of the format, in the facts of a `process` record."""

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
"""Default of a field that lists something. A reader gives each record its own."""


class EvidenceRecord:
    """One line of an evidence file."""

    kind: ClassVar[str]


# Every process.


class ProcessRecord(EvidenceRecord):
    """First line of a file: the process that it is of, and when the probe began in it."""

    kind = "process"
    t: Time
    facts: Facts


class NameRecord(EvidenceRecord):
    """Text that later records refer to by its number."""

    kind = "name"
    number: NameNumber
    text: str


class TorchRecord(EvidenceRecord):
    """Import of torch: its version, and CUDA's."""

    kind = "torch"
    t: Time
    facts: Facts


class FactsRecord(EvidenceRecord):
    """Facts that only the process itself knows: threads, memory of the device, warm-up steps."""

    kind = "facts"
    t: Time
    facts: Facts


class NoteRecord(EvidenceRecord):
    """Something that the report says."""

    kind = "note"
    t: Time
    code: str
    text: str


class AppliedRecord(EvidenceRecord):
    """Remedy that took effect, in `count` places so far; with 0, why it did not."""

    kind = "applied"
    t: Time
    key: str
    count: int
    text: str


class ErrorRecord(EvidenceRecord):
    """Exception that ended the process: its traceback."""

    kind = "error"
    t: Time
    text: str


class StackRecord(EvidenceRecord):
    """Stack of a batch that hangs."""

    kind = "stack"
    t: Time
    what: str
    text: str


class EndRecord(EvidenceRecord):
    """Orderly end of the process: `exit`, or `steps` where the doctor ended the run."""

    kind = "end"
    t: Time
    reason: str


# A process that trains.


class LoaderRecord(EvidenceRecord):
    """DataLoader, or another source of batches, at its first iteration."""

    kind = "loader"
    loader: int
    t: Time
    facts: Facts


class PassRecord(EvidenceRecord):
    """One `iter(loader)`, from its call until it returned."""

    kind = "pass"
    number: int
    loader: int
    t: Time
    end_t: Time
    epoch: int
    pids: list[int]


class GetRecord(EvidenceRecord):
    """Batch that the training thread received; `bytes` and `shape` are those of its tensors."""

    kind = "get"
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


class FetchRecord(GetRecord):
    """Batch that no step waited for."""

    kind = "fetch"


class DrainedRecord(GetRecord):
    """Batch that the window `drain` took."""

    kind = "drained"


class PaddingRecord(EvidenceRecord):
    """Batch of sequences: rows, tokens a row, all tokens that are no padding, and the most of these in a row."""

    kind = "padding"
    pass_: int
    index: int
    rows: int
    width: int
    filled: int
    longest: int


class ReplayedRecord(EvidenceRecord):
    """Copy of a cached batch, in place of one of that pass."""

    kind = "replayed"
    pass_: int
    start: Time
    duration: Duration


class WindowRecord(EvidenceRecord):
    """Window of a measured run: its first step, its steps, and how many of these settle."""

    kind = "window"
    name: str
    first: int
    steps: int
    settling: int
    t: Time
    end_t: Time


class FeedRecord(EvidenceRecord):
    """Figures that a loader of Headrace reports of itself, from the start of its pass."""

    kind = "feed"
    pass_: int
    t: Time
    facts: Facts


class LastRecord(EvidenceRecord):
    """The `next()` that found the end of a pass."""

    kind = "last"
    pass_: int
    t: Time
    duration: Duration


class StepRecord(EvidenceRecord):
    """Optimizer step; `spans` are kind, offset from `start`, and duration, and `probe` is the probe's own cost."""

    kind = "step"
    number: int
    start: Time
    end: Time
    spans: list[tuple[str, Duration, Duration]] = NO_ROWS
    probe: Tenths | float | None = None
    cpu: Duration | None = None
    delay: Duration | None = None


class RestRecord(EvidenceRecord):
    """Steps that were not measured, so that observation stays cheap."""

    kind = "rest"
    number: int
    t: Time
    end_t: Time
    steps: int
    probe: Tenths | float


class DeviceRecord(EvidenceRecord):
    """The GPU's view of a step: a letter for each mark, and its distance from the mark before."""

    kind = "device"
    number: int
    kinds: str
    gaps: list[Tenths]


class ReadyRecord(EvidenceRecord):
    """Moment at which this rank's own gradients were done."""

    kind = "ready"
    number: int
    t: Time


class DigestRecord(EvidenceRecord):
    """Digests of a batch's tensors and of its keys, and a few values of each tensor."""

    kind = "digest"
    pass_: int
    content: str
    keys: str | None = None
    sketches: list[list[float]] = NO_ROWS


class CollectiveRecord(EvidenceRecord):
    """Synchronous collective call within a step."""

    kind = "collective"
    step: int
    start: Time
    duration: Duration
    name: NameNumber
    bytes: Bytes | None = None


# A process that produces batches.


class WorkerRecord(EvidenceRecord):
    """Start of a worker."""

    kind = "worker"
    t: Time
    facts: Facts


class BatchRecord(EvidenceRecord):
    """Batch: its index came at `start`, it was collated at `fetched`, and in the pipe at `sent`.

    `beside` are stages of other threads meanwhile; `worked` is what all threads of a ThreadDataLoader took for it.
    """

    kind = "batch"
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

    kind = "slow"
    epoch: int
    index: int
    key: str
    wall: Duration
    stages: list[tuple[NameNumber, Duration]] = NO_ROWS


class LookRecord(EvidenceRecord):
    """Sample that was compared with itself; `stages` are stage, whether it drew, and whether it gave the same."""

    kind = "look"
    epoch: int
    index: int
    stages: list[tuple[NameNumber, Flag, Flag | None]]
    drew: Flag
    same: Flag | None = None
    takes: list[str] = NO_ROWS


class LinesRecord(EvidenceRecord):
    """Time by line of the user's code, since the last such record."""

    kind = "lines"
    t: Time
    counts: list[tuple[NameNumber, Duration]]


class OpenedRecord(EvidenceRecord):
    """Files opened since the last such record.

    `files` are path and opens; `folders` are path, opens, whether it stands for all beneath it, endings and hashes.
    """

    kind = "opened"
    t: Time
    files: list[tuple[NameNumber, int]]
    folders: list[tuple[NameNumber, int, Flag, list[str], list[int]]]
    rest: int = 0


class ProbeRecord(EvidenceRecord):
    """Cost of the probe in this process so far."""

    kind = "probe"
    t: Time
    us: Duration


RECORDS: tuple[type[EvidenceRecord], ...] = (
    ProcessRecord, NameRecord, TorchRecord, FactsRecord, NoteRecord, AppliedRecord, ErrorRecord, StackRecord, EndRecord,
    LoaderRecord, PassRecord, GetRecord, FetchRecord, DrainedRecord, PaddingRecord, ReplayedRecord, WindowRecord,
    FeedRecord, LastRecord, StepRecord, RestRecord, DeviceRecord, ReadyRecord, DigestRecord, CollectiveRecord,
    WorkerRecord, BatchRecord, SlowRecord, LookRecord, LinesRecord, OpenedRecord, ProbeRecord,
)  # fmt: skip


def fields_of(record: type[EvidenceRecord]) -> list[str]:
    """List the fields of a record in their order, without the kind."""
    names = [name for base in reversed(record.__mro__) for name in vars(base).get("__annotations__", {})]
    return [name for name in names if name != "kind"]
