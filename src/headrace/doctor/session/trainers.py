"""Recorded training: received batches, optimizer steps, passes, windows, and the training process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.doctor.session.declaring import (
    Bytes,
    Duration,
    Facts,
    Flag,
    Name,
    NameNumber,
    Pid,
    Table,
    Tenths,
    Time,
    listed,
    recorded,
    told,
)
from headrace.doctor.session.producers import SourceLine

TensorSummary = tuple[str, float | None, float | None, list[float]]
"""Tensor of a batch: type and shape of one sample, lowest and highest value, and a number per sample."""
SPANS = {
    "d": ("data work", "work on a batch before the model is called"),
    "n": ("not seen", "the same from the end of a step on, while nothing is known to give batches"),
    "f": ("forward", "the forward pass, where the next batch is asked for before its backward pass"),
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
    "load": "cached batches while the workers go on",
    "drain": "batches only, without steps",
}
"""Windows of a measured run, in order."""
OBSERVE, REPLAY, LOAD, DRAIN = WINDOWS


@recorded(
    "trainer",
    {
        "get": "Batch that the training thread received by a `next()`.",
        "fetch": "Batch that no step waited for: of an evaluation, or received by another thread without a visible "
        "hand-over.",
        "drained": "Batch taken in the window `drain`.",
    },
)
@dataclass
class ReceivedBatches(Table):
    """Batches that the training thread received, in order: one row a `next()`."""

    pass_: list[int] = listed("number of the pass")
    index: list[int] = listed("number of the batch in it")
    start: list[Time] = listed("when `next()` was called")
    duration: list[Duration] = listed("of that call")
    arrived: list[Time | None] = listed(
        "when unpickling it from the workers' queue ended; an earlier batch may have held it back since"
    )
    unpickle: list[Duration | None] = listed("of unpickling")
    pin_start: list[Time | None] = listed("when copying to pinned memory began")
    pin: list[Duration | None] = listed("of that copy")
    bytes: list[Bytes | None] = listed("of its tensors")
    shape: list[NameNumber | None] = listed(
        "of its tensors, such as `float32[32,3,224,224] int64[32]`: a name in a record, and a number into `shapes` here"
    )
    unpickle_cpu: list[Duration | None] = listed(
        "CPU time of the thread in unpickling, which otherwise waits for the worker to hand tensors over",
        may_be_empty=True,
    )
    others_cpu: list[Duration | None] = listed(
        "CPU time of all other threads of the process during `next()`, where workers make the batches: libraries' "
        "threads that spin show in it",
        may_be_empty=True,
    )


@recorded("trainer", {"replayed": "Copy of a cached batch in place of a batch of the loader's."})
@dataclass
class ReplayedBatches(Table):
    """Copies of cached batches that the training thread received: one row a `next()`, and no part of a step."""

    pass_: list[int] = listed("number of the pass")
    start: list[Time] = listed("when `next()` was called")
    duration: list[Duration] = listed("of copying; the doctor's own time")


@recorded(
    "trainer", {"step": "Optimizer step, from the end of the step before to the end of its last `optimizer.step()`."}
)
@dataclass
class OptimizerSteps(Table):
    """Optimizer steps: one row each."""

    number: list[int] = listed("of the step, from 0")
    start: list[Time] = listed("the end of the step before")
    end: list[Time] = listed("the end of its last `optimizer.step()`")
    spans: list[list[tuple[str, int, int]]] = listed(
        "kind, start (in a record: from the step's start on) and duration, in order. Spans never overlap: an inner "
        "span cuts the outer span in two. Waits for batches are no spans",
        written=list[tuple[str, int, int]],
        may_be_empty=True,
    )
    probe: list[Tenths | None] = listed("cost of the probe in the training thread, batch production included")
    device: list[list[tuple[str, float]] | None] = listed("marks and their times on the GPU's clock", is_derived=True)
    ready: list[Time | None] = listed("when this rank's own gradients were done, in stamped steps", is_derived=True)
    cpu: list[Duration | None] = listed("CPU time of all threads of the process", may_be_empty=True)
    delay: list[Duration | None] = listed(
        "time that the training thread was ready to run and had no core, of steps of 10 ms and more", may_be_empty=True
    )


@recorded("trainer", {"collective": "Synchronous collective call within a step; at most 1024 a step."})
@dataclass
class Collectives(Table):
    """Synchronous collective calls: one row each."""

    step: list[int] = listed("number of the step")
    start: list[Time] = listed("when it was called")
    duration: list[Duration] = listed("of the call")
    name: list[Name] = listed("of the function")
    bytes: list[Bytes | None] = listed("of its tensors")


@recorded("trainer", {"pass": "One `iter(loader)`, from its call until it returned."})
@dataclass
class TrainerPass:
    """One iteration over a DataLoader."""

    number: int = told("of the pass")
    loader: int = told("number of the loader")
    start: Time = told("when `iter()` was called")
    ready: Time = told("when it returned")
    epoch: int = told("passes over the same worker processes so far; the pass's own number without workers")
    workers: list[Pid] = told("pids by worker id; the trainer's own without workers")
    sampler_epoch: int | None = told(
        "epoch that the sampler shuffles by, as DistributedSampler has it; `null` if it has none", default=None
    )
    with_grad: bool | None = told(
        "whether autograd was on when `iter()` was called; `null` of a source other than a DataLoader", default=None
    )
    last: Duration | None = told(
        "of the `next()` that ended it; `null` if no `next()` did", default=None, is_derived=True
    )
    last_start: Time | None = told("when that was called", default=None, is_derived=True)


@recorded(
    "trainer",
    {"loader": "DataLoader, or another source of batches, at its first iteration."},
    order=("number", "time", "facts"),
)
@dataclass
class LoaderFacts:
    """Facts about a DataLoader, or another source of batches."""

    number: int = told("of the loader")
    facts: Facts = told(
        "of a DataLoader: num_workers, batch_size, prefetch_factor, persistent_workers, pin_memory, in_order, timeout, "
        "iterable, start_method, dataset (module.Class), length (batches or null), samples (of the dataset, or null), "
        "file and line (where the user iterates it), described ([below](#described-loaders)). Of another source: "
        "source (its name), dataset (the same), file, line, settings (of a known library). Of Headrace's loaders: "
        "num_workers 0, threads, batch_size, dataset (the loader's type), length, file, line"
    )
    time: Time | None = told("of the first iteration", default=None, written=Time)


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


@recorded("trainer", {"padding": "Batch of sequences that was checked for padding: every 8th of a pass, 64 in all."})
@dataclass
class BatchPadding(Table):
    """Batches of sequences whose padding was counted, in tokens: one row a batch."""

    pass_: list[int] = listed("number of the pass")
    index: list[int] = listed("number of the batch in it")
    rows: list[int] = listed("sequences")
    width: list[int] = listed("tokens a row")
    filled: list[int] = listed(
        "all tokens that are no padding, by `attention_mask`, else by the value that most rows of the first matrix of "
        "whole numbers end with"
    )
    longest: list[int] = listed("most of these in a row")


@recorded("trainer", {"window": "Window of a measured run that has ended."})
@dataclass
class MeasuredWindow:
    """Steps of one kind in a measured run."""

    name: str = told("a key of the [windows](#windows)")
    first: int = told("number of its first step")
    steps: int = told("how many; 0 for `drain`")
    settling: int = told("steps at its start that belong to the change of windows")
    start: Time = told("of the window")
    end: Time = told("of the window")


@recorded("trainer", {"digest": "Identity of one of the first batches, where runs are to be compared."})
@dataclass
class BatchDigest:
    """Identity of one of the first batches that a trainer received, to compare runs."""

    pass_: int = told("number of the pass")
    content: str = told("digest of the tensors' bytes, types and shapes")
    keys: str | None = told("digest of the keys that the sampler drew; `null` without any", default=None)
    tensors: list[TensorSummary] = listed(
        "of each its type and shape without the batch's own dimension (`float32[3,224,224]`), its lowest and highest "
        "value, and a number for each sample: a sum of its labels or tokens, else its mean",
        may_be_empty=True,
    )


@recorded("trainer", {"drawn": "Batch that a run with `--check resume` took from a DataLoader."})
@dataclass
class DrawnBatch:
    """Batch that the trainer took, by the keys that the sampler drew."""

    pass_: int = told("number of the pass")
    step: int = told("optimizer steps before it")
    keys: str = told("digest of the keys")


@recorded("trainer", {"saved": "Checkpoint that a run with `--check resume` wrote."})
@dataclass
class SavedCheckpoint:
    """Checkpoint that the trainer wrote."""

    time: Time = told("of the end of the call")
    taken: int = told("batches taken before it, as in `drawn`")
    is_file: Flag = told("1 for a file, 0 for memory")


@recorded("trainer", {"feed": "Figures that a loader of Headrace reports every half second and at the end of a pass."})
@dataclass
class LoaderFeed:
    """Figures of a loader of Headrace since the start of a pass."""

    pass_: int = told("number of the pass")
    time: Time = told("of the report")
    facts: Facts = told(
        "`stats()` since the start of the pass: batches, samples, threads, map_workers, prefetch, wall_s, "
        "consumer_wait_s, idle_s, python_s, copy_s, limit, of files in a store `fetch` (counts) and `fetch_latency_s` "
        "(by quantile), `stages` (items and busy seconds of each, over all threads)"
    )


@dataclass
class Trainer:
    """One process that trains: a rank."""

    pid: Pid = told("of the process")
    host: str = told("on which it ran")
    rank: int = told("0 if the process names none")
    steps: OptimizerSteps = told("optimizer steps", default_factory=OptimizerSteps, rows_of="step")
    gets: ReceivedBatches = told(
        "batches received by the training thread", default_factory=ReceivedBatches, rows_of="get"
    )
    fetches: ReceivedBatches = told("batches that no step waited for", default_factory=ReceivedBatches, rows_of="fetch")
    passes: list[TrainerPass] = listed("iterations over loaders", rows_of="pass")
    loaders: list[LoaderFacts] = listed("loaders, and other sources of batches", rows_of="loader")
    collectives: Collectives = told("synchronous collective calls", default_factory=Collectives, rows_of="collective")
    shapes: list[str] = listed("texts such as `float32[32,3,224,224] int64[32]`")
    padding: BatchPadding = told(
        "batches of sequences whose padding was counted", default_factory=BatchPadding, rows_of="padding"
    )
    windows: list[MeasuredWindow] = listed("windows of a measured run, in order", rows_of="window")
    replays: ReplayedBatches = told("copies of cached batches", default_factory=ReplayedBatches, rows_of="replayed")
    drained: ReceivedBatches = told(
        "batches taken in the window `drain`", default_factory=ReceivedBatches, rows_of="drained"
    )
    feeds: list[LoaderFeed] = listed("reports of Headrace's loaders", rows_of="feed")
    digests: list[BatchDigest] = listed(
        "identities of its first batches, if runs were to be compared", rows_of="digest"
    )
    drawn: list[DrawnBatch] = listed("all batches in order, if a resume is checked", rows_of="drawn")
    saved: list[SavedCheckpoint] = listed("checkpoints, if a resume is checked", rows_of="saved")
    lines: list[SourceLine] = listed(
        "stack samples of the training thread's work on batches before the model had them, heaviest first"
    )
