"""Recorded training: received batches, optimizer steps, passes, windows, and the training process.

Columns of a table are the fields of its records in `evidence`, whose comments hold here as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.doctor.session.producers import Facts, Pid, SourceLine, Table, Time

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
WINDOWS = {
    "observe": "the loop as it is",
    "replay": "cached batches, workers idle",
}
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
    """Index into `Trainer.shapes`."""
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
    """Call of `iter()`."""
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


LOADER_FACTS = (
    *("num_workers", "threads", "batch_size", "prefetch_factor", "persistent_workers", "pin_memory", "in_order"),
    *("start_method", "length", "dataset"),
)
"""Arguments of a loader that reports show."""


def order_described(described: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the sampler of a described loader: the inner one of the script's batch sampler, if any.

    With a batch sampler, torch's DataLoader also has an unused sequential sampler.
    """
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
    """Number of its first step."""
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


class BatchRows(msgspec.Struct):
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
    rows: list[BatchRows] = []
    drawn: list[DrawnBatch] = []
    saved: list[SavedCheckpoint] = []
    lines: list[SourceLine] = []
    before: list[SourceLine] = []
    """Lines of the program's start."""
    """Stack samples of the training thread's work on batches before the model had them, heaviest first."""
