"""Recorded training: production and receipt of batches, optimizer steps, passes, windows, and their processes.

Columns of a table are the fields of its records in `evidence`, whose comments hold here as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Self

import msgspec

TIME, PID = "time", "pid"
Time = Annotated[int, TIME]
"""Microseconds on the session's clock, which `merged` shifts."""
Pid = Annotated[int, PID]
"""Process id, unique in a session."""
Facts = dict[str, Any]
StageRow = tuple[int, int, int, int]
"""Stage (an index into `BatchProducer.stages`; a name in a record), calls, wall time and CPU time."""


class Table(msgspec.Struct):
    """Rows of one kind, stored as one list per column."""

    @classmethod
    def of(cls, records: Sequence[msgspec.Struct]) -> Self:
        """Return the columns of records, each named as the record's field."""
        names = records[0].__struct_fields__ if records else ()
        return cls(**{name: list(map(attrgetter(name), records)) for name in names})


class ProducedBatches(Table):
    """Columns of `batch` records (`evidence.BatchLine`)."""

    epoch: list[int] = []
    index: list[int] = []
    start: list[Time] = []
    fetched: list[Time] = []
    sent: list[Time | None] = []
    serialise: list[int | None] = []
    samples: list[int | None] = []
    stages: list[list[StageRow]] = []
    cpu: list[int | None] = []
    delay: list[int | None] = []


class FirstBatch(msgspec.Struct):
    """Digests of one of the first batches that a process produced in a pass (`evidence.FirstLine`)."""

    epoch: int
    index: int
    keys: str | None = None
    leaves: list[tuple[str, str, int]] = []
    generators: list[tuple[str, str, str]] = []
    files: list[str] = []
    """Paths opened for reading."""
    state: dict[str, float] = {}
    """Numbers among the dataset's attributes in this process, in a run that is checked for faults of its data."""


class StoreReads(msgspec.Struct):
    """Requests to one store during batch production."""

    place: str
    """`s3://bucket`, or a web server's host; never a key, query or user."""
    requests: int
    failed: int
    """Requests answered by a status of 400 or more."""
    bytes: int
    """Bytes that the answers announced; of pipes, bytes that were read."""
    first_us: int
    """Time until the answers began, of all requests together."""


class RemoteReads(msgspec.Struct):
    """Requests to all stores, of all processes together, most bytes first."""

    batches: int = 0
    """Batches produced meanwhile."""
    stores: list[StoreReads] = []


class SourceLine(msgspec.Struct):
    """Time in one line of the user's code, by stack samples."""

    place: str
    """`file:line:function` of the innermost frame of the user's own code."""
    us: int


class BatchProducer(msgspec.Struct):
    """One process that produced batches."""

    pid: Pid
    host: str
    trainer: Pid | None
    """Pid of the process that it works for; its own if a trainer produces its batches itself."""
    worker: int | None
    """Worker id; None for a trainer."""
    begun: Time | None = None
    """Start of its worker loop."""
    stages: list[str] = []
    """Names of stages, `category:label`."""
    batches: ProducedBatches = msgspec.field(default_factory=ProducedBatches)
    first: list[FirstBatch] = []
    lines: list[SourceLine] = []
    """Stack samples of batch production, heaviest first."""


SPANS = {
    "d": ("data work", "work on a batch before the model is called"),
    "n": ("not seen", "the same from the end of a step on, while nothing is known to give batches"),
    "h": ("host to device", "a copy of a batch to the device"),
    "b": ("backward", "the backward pass"),
    "o": ("optimizer", "the optimizer's step, without what a closure does inside it"),
    "s": ("skipped step", "a step that GradScaler skipped"),
    "c": ("collective", "a collective call of torch.distributed"),
    "e": ("evaluation", "an evaluation with all that happened in it, or what lies between two replayed passes"),
}
"""Kinds of span: name in a trace, and meaning."""
MARKS = {
    "s": "a step begins",
    "w": "a `next()` begins",
    "r": "it returned",
    "h": "a copy to the device begins",
    "i": "that copy has ended",
    "m": "the model is called",
    "b": "backward begins",
    "c": "backward has ended",
    "g": "this rank's own gradients are done, in stamped steps",
    "o": "the optimizer begins",
    "p": "the optimizer has ended",
}
"""Marks on the device's stream."""
WINDOWS = {"observe": "the loop as it is", "replay": "cached batches, workers idle"}
"""Windows of a measured run, in order."""
OBSERVE, REPLAY = WINDOWS


class ReceivedBatches(Table):
    """Batches that the training thread received, in order: columns of `get` or `fetch` records."""

    pass_: list[int] = []
    index: list[int] = []
    start: list[Time] = []
    duration: list[int] = []
    arrived: list[Time | None] = []
    unpickle: list[int | None] = []
    pin_start: list[Time | None] = []
    pin: list[int | None] = []
    bytes: list[int | None] = []
    shape: list[int | None] = []
    unpickle_cpu: list[int | None] = []


class ReplayedBatches(Table):
    """Copies of cached batches that the training thread received, no part of a step: columns of `replayed` records."""

    pass_: list[int] = []
    start: list[Time] = []
    duration: list[int] = []


class OptimizerSteps(Table):
    """Optimizer steps: columns of `step` records."""

    number: list[int] = []
    start: list[Time] = []
    end: list[Time] = []
    spans: list[list[tuple[str, int, int]]] = []
    """Kind, start and duration of each span."""
    probe: list[float | None] = []
    """Cost of the loop's hooks in microseconds."""
    device: list[list[tuple[str, float]] | None] = []
    """Marks and their times on the GPU's clock."""
    ready: list[Time | None] = []
    """End of this rank's own gradients, in stamped steps."""
    cpu: list[int | None] = []
    delay: list[int | None] = []


class Collectives(Table):
    """Synchronous collective calls: columns of `collective` records."""

    step: list[int] = []
    start: list[Time] = []
    duration: list[int] = []
    name: list[str] = []


class BegunPass(msgspec.Struct):
    """One iteration over a DataLoader, at its start."""

    number: int
    loader: int
    start: Time
    ready: Time
    """Return of `iter()`."""
    epoch: int
    """Passes over the same worker processes so far; the pass's own number without workers."""
    workers: list[Pid]
    """Pids by worker id; the trainer's own without workers."""
    sampler_epoch: int | None = None
    """Epoch that the sampler shuffles by, as in DistributedSampler."""
    with_grad: bool | None = None
    """True if autograd was on at `iter()`."""

    state: dict[str, float] = {}
    """Numbers among the dataset's attributes, in a run that is checked for faults of its data."""


class TrainerPass(BegunPass):
    """One iteration over a DataLoader, and its end."""

    last: int | None = None
    """Duration of the `next()` that ended it; None if no `next()` did."""
    last_start: Time | None = None


class LoaderFacts(msgspec.Struct):
    """Facts about a DataLoader at its first iteration."""

    number: int
    facts: Facts
    """Arguments of a DataLoader, start_method, dataset (module.Class), length in batches, file and line of the
    iteration, `file:line` of the construction as `made`, its number among all as `ordinal`, and its objects as
    `described`. Headrace's loaders have
    num_workers 0, threads, batch_size, dataset, length, file, line."""
    time: Time | None = None


def order_described(described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a loader's sampler: the inner one of the script's batch sampler, if any, and not torch's unused one."""
    given = described.get("batch_sampler")
    while isinstance(given, dict) and (name := short_class(given)):
        inner = given.get("attributes", {})
        if name not in ("BatchSampler", "BatchSamplerShard"):
            return given
        given = inner.get("sampler", inner.get("batch_sampler"))
        if isinstance(given, dict) and "BatchSampler" not in str(given.get("class", "")):
            return given
    sampler = described.get("sampler")
    return sampler if isinstance(sampler, dict) else {}


def short_class(described: Mapping[str, Any]) -> str:
    """Return the class name of a described object, without its module; empty if unknown."""
    return str(described.get("class", "")).rpartition(".")[2]


class BatchPadding(Table):
    """Batches of sequences whose padding was counted, in tokens: columns of `padding` records."""

    pass_: list[int] = []
    index: list[int] = []
    rows: list[int] = []
    width: list[int] = []
    filled: list[int] = []
    longest: list[int] = []


class MeasuredWindow(msgspec.Struct):
    """Steps of one kind in a measured run."""

    name: str
    first: int
    steps: int
    settling: int
    """Steps at its start that belong to the change of windows."""
    start: Time
    end: Time


class BatchDigest(msgspec.Struct):
    """Identity of one of the first batches that a trainer received, to compare runs."""

    pass_: int
    content: str
    """Digest of the tensors' bytes, types and shapes."""
    keys: str | None = None
    """Digest of the keys that the sampler drew; None without any."""
    tensors: list[str] = []
    """Type and shape of one sample, by tensor."""


class PassKeys(msgspec.Struct):
    """Keys of a whole pass, in a run that is checked for faults of its data."""

    pass_: int
    feeds: int
    """1 if an optimizer stepped on its batches."""
    count: int
    """Number of its keys; 0 for a stream."""
    is_distinct: int
    """1 if no key is repeated."""
    is_whole: int
    """1 if all keys of the pass were followed."""
    order: str
    """Digest of all keys in their order."""
    least: list[int]
    """Smallest hashes of keys: up to 4,096, by which sets of keys are compared."""
    base: str
    """Class and identity of the dataset that the keys belong to, behind torch's Subsets."""


class StreamRows(msgspec.Struct):
    """Batch of a stream by its rows, in a run that is checked for faults of its data."""

    pass_: int
    index: int
    leaves: list[tuple[str, list[str]]]
    """Path, and digests of the rows."""


class DrawnBatch(msgspec.Struct):
    """Batch that a trainer took under `headrace check resume`, by the keys that the sampler drew."""

    pass_: int
    step: int
    """Number of optimizer steps before it."""
    keys: str
    """Digest of the keys; of its rows, if it is of a stream."""
    samples: list[int] = []
    """Hashes of its keys or rows; empty beyond the first 400,000 of a run."""


class SavedCheckpoint(msgspec.Struct):
    """Checkpoint that a trainer wrote under `headrace check resume`."""

    time: Time
    taken: int
    """Number of batches taken before it."""
    is_file: int
    """1 for a file, 0 for memory."""


class Trainer(msgspec.Struct):
    """One process that trains: a rank."""

    pid: Pid
    host: str
    rank: int
    """Rank; 0 if the process names none."""
    steps: OptimizerSteps = msgspec.field(default_factory=OptimizerSteps)
    gets: ReceivedBatches = msgspec.field(default_factory=ReceivedBatches)
    fetches: ReceivedBatches = msgspec.field(default_factory=ReceivedBatches)
    """Batches that no step waited for."""
    passes: list[TrainerPass] = []
    loaders: list[LoaderFacts] = []
    collectives: Collectives = msgspec.field(default_factory=Collectives)
    shapes: list[str] = []
    """Shapes of batches, such as `float32[32,3,224,224] int64[32]`."""
    padding: BatchPadding = msgspec.field(default_factory=BatchPadding)
    windows: list[MeasuredWindow] = []
    replays: ReplayedBatches = msgspec.field(default_factory=ReplayedBatches)
    digests: list[BatchDigest] = []
    keys: list[PassKeys] = []
    rows: list[StreamRows] = []
    drawn: list[DrawnBatch] = []
    saved: list[SavedCheckpoint] = []
    lines: list[SourceLine] = []
    before: list[SourceLine] = []
    """Lines of the program's start."""
    """Stack samples of the training thread's work on batches before the model had them, heaviest first."""
