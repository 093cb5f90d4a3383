"""Recorded production of batches: stages, samples, and the producing process."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Numbers among the dataset's attributes in this process."""


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
