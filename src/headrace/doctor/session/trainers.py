"""Training as it was recorded: batches received, optimizer steps, passes, windows, and the process that trains.

Tables, units and None are as in `model`; docs/doctor/session.md describes each field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .producers import SourceLine

TensorSummary = tuple[str, float | None, float | None, list[float]]
"""A batch's tensor: type and shape of a sample, lowest and highest value, and a number for each sample."""


@dataclass
class ReceivedBatches:
    """Batches that the training thread received, in order: one row a `next()`."""

    pass_: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    arrived: list[int | None] = field(default_factory=list)
    unpickle: list[int | None] = field(default_factory=list)
    pin_start: list[int | None] = field(default_factory=list)
    pin: list[int | None] = field(default_factory=list)
    bytes: list[int | None] = field(default_factory=list)
    shape: list[int | None] = field(default_factory=list)
    """Into `Trainer.shapes`."""
    unpickle_cpu: list[int | None] = field(default_factory=list)
    others_cpu: list[int | None] = field(default_factory=list)


@dataclass
class ReplayedBatches:
    """Copies of cached batches that the training thread received: one row a `next()`, and no part of a step."""

    pass_: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)


@dataclass
class OptimizerSteps:
    """Optimizer steps: one row each."""

    number: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    spans: list[list[tuple[str, int, int]]] = field(default_factory=list)
    """Kind, start and duration; docs/doctor/evidence.md lists the kinds."""
    probe: list[float | None] = field(default_factory=list)
    device: list[list[tuple[str, float]] | None] = field(default_factory=list)
    """Kind and time on the GPU's clock."""
    ready: list[int | None] = field(default_factory=list)
    cpu: list[int | None] = field(default_factory=list)
    delay: list[int | None] = field(default_factory=list)


@dataclass
class Collectives:
    """Synchronous collective calls: one row each."""

    step: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    bytes: list[int | None] = field(default_factory=list)


@dataclass
class TrainerPass:
    """One iteration over a DataLoader. `workers` are pids by worker id, or the trainer's own without workers."""

    number: int
    loader: int
    start: int
    ready: int
    epoch: int
    workers: list[int]
    last: int | None = None
    last_start: int | None = None


@dataclass
class LoaderFacts:
    """Facts about a DataLoader, as in the evidence."""

    number: int
    facts: dict[str, Any]


@dataclass
class BatchPadding:
    """Batches of sequences whose padding was counted, in tokens: one row a batch."""

    pass_: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    width: list[int] = field(default_factory=list)
    filled: list[int] = field(default_factory=list)
    longest: list[int] = field(default_factory=list)


@dataclass
class UnmeasuredSteps:
    """Steps that `--observe` did not measure, so that the run is not slowed down."""

    first: int
    start: int
    end: int
    steps: int
    probe: float


@dataclass
class MeasuredWindow:
    """Steps of one kind in a measured run: `observe`, `early`, `replay`, `load` or `drain`."""

    name: str
    first: int
    steps: int
    settling: int
    start: int
    end: int


@dataclass
class BatchDigest:
    """Identity of one of the first batches that a trainer received, to compare runs."""

    pass_: int
    content: str
    keys: str | None
    sketches: list[list[float]] = field(default_factory=list)
    tensors: list[TensorSummary] = field(default_factory=list)


@dataclass
class LoaderFeed:
    """What a loader of Headrace reported about itself since the start of a pass."""

    pass_: int
    time: int
    facts: dict[str, Any]


@dataclass
class Trainer:
    """One process that trains: a rank."""

    pid: int
    host: str
    rank: int
    steps: OptimizerSteps = field(default_factory=OptimizerSteps)
    gets: ReceivedBatches = field(default_factory=ReceivedBatches)
    fetches: ReceivedBatches = field(default_factory=ReceivedBatches)
    passes: list[TrainerPass] = field(default_factory=list)
    loaders: list[LoaderFacts] = field(default_factory=list)
    collectives: Collectives = field(default_factory=Collectives)
    shapes: list[str] = field(default_factory=list)
    padding: BatchPadding = field(default_factory=BatchPadding)
    rests: list[UnmeasuredSteps] = field(default_factory=list)
    windows: list[MeasuredWindow] = field(default_factory=list)
    replays: ReplayedBatches = field(default_factory=ReplayedBatches)
    drained: ReceivedBatches = field(default_factory=ReceivedBatches)
    feeds: list[LoaderFeed] = field(default_factory=list)
    digests: list[BatchDigest] = field(default_factory=list)
    lines: list[SourceLine] = field(default_factory=list)
    """Of its work on batches, before the model had them."""
