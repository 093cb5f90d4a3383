"""Production of batches as it was recorded: stages, samples, files opened, and the process that makes them.

Tables, units and None are as in `model`; docs/doctor/session.md describes each field.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

StageRow = tuple[int, int, int, int]
"""Stage (into `BatchProducer.stages`), calls, wall time and CPU time."""


@dataclass
class ProducedBatches:
    """Batches that one process produced: one row each."""

    epoch: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    sent: list[int | None] = field(default_factory=list)
    serialise: list[int | None] = field(default_factory=list)
    samples: list[int | None] = field(default_factory=list)
    stages: list[list[StageRow]] = field(default_factory=list)
    beside: list[list[StageRow]] = field(default_factory=list)
    cpu: list[int | None] = field(default_factory=list)
    delay: list[int | None] = field(default_factory=list)
    worked: list[int | None] = field(default_factory=list)


@dataclass
class SlowSample:
    """One of the slowest samples: its key as text, its wall time, and stage and wall time as in `ProducedBatches`."""

    key: str
    epoch: int
    index: int
    wall: int
    stages: list[tuple[int, int]]
    cpu: int | None = None


@dataclass
class InspectedStage:
    """Stage of an inspected sample: whether it drew random numbers, and whether it gave the same when repeated."""

    stage: int
    """Into `BatchProducer.stages`."""
    drew: bool
    same: bool | None


@dataclass
class InspectedSample:
    """Sample whose production was inspected: its stages in the order in which they ended."""

    epoch: int
    index: int
    stages: list[InspectedStage]
    drew: bool
    same: bool | None
    takes: list[str] = field(default_factory=list)


@dataclass
class ObservedCall:
    """Call of a library's function while a sample was produced: its stage, and the user's line that it came from."""

    stage: str
    """`category:label`."""
    place: str | None
    """`file:line:function`; None where no code of the user's lies between the loader and the call."""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class OutputLeaf:
    """Value inside a batch: where it lies, what it is, and the range of its numbers."""

    path: str
    """Keys and positions, such as `0`, `image` or `meta.id`; empty for the whole."""
    kind: str
    """`tensor`, `ndarray`, `PIL`, `int`, `float`, `bool`, `str`, `bytes`, `None`, or the name of a class."""
    shape: list[int] | None = None
    dtype: str | None = None
    low: float | int | None = None
    high: float | int | None = None


@dataclass
class ObservedSample:
    """How one sample or batch was produced: the calls in the order in which they began."""

    epoch: int
    index: int
    key: str
    wall: int
    calls: list[ObservedCall] = field(default_factory=list)
    output: list[OutputLeaf] = field(default_factory=list)
    """Values of a batch; an earlier doctor had those of samples, too."""


@dataclass
class OpenedFile:
    """File that was opened for reading during batch production."""

    path: str
    opens: int


@dataclass
class OpenedFolder:
    """Folder of such files, with the endings of their names; the empty one stands for all."""

    path: str
    opens: int
    names: int
    is_exact: bool
    is_deep: bool
    ends: list[str]


@dataclass
class FileOpens:
    """What all processes opened for reading: every open counts in its folder, and the first files of each by path."""

    files: list[OpenedFile] = field(default_factory=list)
    folders: list[OpenedFolder] = field(default_factory=list)
    rest: int = 0


@dataclass
class StoreReads:
    """Requests to one store during batch production."""

    place: str
    """`s3://bucket`, or the host of a web server: `https://host`."""
    requests: int
    failed: int
    """Requests that were answered by an error."""
    bytes: int
    first_us: int
    """Time until the answers began, of all requests together."""
    latencies: list[tuple[int, int]]
    """Class of that time, and requests in it: class k begins at 2 ** (k / 8) microseconds."""
    distinct: int
    """Objects, or ranges of them, that were asked for; estimated unless `is_exact`."""
    is_exact: bool

    def latency_us(self, quantile: float) -> float:
        """Return the latency that this share of the requests had at most."""
        left = quantile * sum(count for _, count in self.latencies)
        for step, count in self.latencies:
            left -= count
            if left <= 0:
                return float(2 ** ((step + 0.5) / 8))
        return 0.0


@dataclass
class RemoteReads:
    """Requests to all stores, of all processes together, the store with the most bytes first."""

    batches: int = 0
    """Batches that were made meanwhile."""
    stores: list[StoreReads] = field(default_factory=list)


@dataclass
class SourceLine:
    """Time in one line of the user's code: `file:line:function`."""

    place: str
    us: int


@dataclass
class BatchProducer:
    """One process that produced batches: a worker (`worker` is its id), or a trainer without workers (None)."""

    pid: int
    host: str
    trainer: int | None
    """Pid of the process that it works for."""
    worker: int | None
    facts: dict[str, Any] = field(default_factory=dict)
    started: int | None = None
    begun: int | None = None
    stages: list[str] = field(default_factory=list)
    """`category:label`."""
    batches: ProducedBatches = field(default_factory=ProducedBatches)
    slow: list[SlowSample] = field(default_factory=list)
    looks: list[InspectedSample] = field(default_factory=list)
    lines: list[SourceLine] = field(default_factory=list)
    probe: int | None = None
    samples: list[ObservedSample] = field(default_factory=list)
    collated: list[ObservedSample] = field(default_factory=list)
    """Batches as they were collated, in the form of a sample."""
