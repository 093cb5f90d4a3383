"""Recorded production of batches: stages, samples, opened files, and the producing process."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.doctor.session.declaring import (
    Bytes,
    Duration,
    Facts,
    NameNumber,
    Pid,
    Table,
    Time,
    listed,
    recorded,
    told,
)

StageRow = tuple[int, int, int, int]
"""Stage (an index into `BatchProducer.stages`; a name in a record), calls, wall time and CPU time."""


@recorded("maker", {"batch": "Batch that was produced."})
@dataclass
class ProducedBatches(Table):
    """Batches that one process produced: one row each."""

    epoch: list[int] = listed(
        "as the trainer counts passes of these workers; in the trainer itself the pass; below 0 where the training "
        "thread did not begin it"
    )
    index: list[int] = listed("number of the batch in it")
    start: list[Time] = listed("when its index arrived")
    fetched: list[Time] = listed("when it was collated")
    sent: list[Time | None] = listed("when it was in the pipe; `null` in the trainer itself")
    serialise: list[Duration | None] = listed("of pickling, a part of sending")
    samples: list[int | None] = listed("how many it has")
    stages: list[list[StageRow]] = listed(
        "stage, calls, wall time and CPU time, without inner stages; their wall times sum to `fetched` less `start`",
        written=list[StageRow],
        may_be_empty=True,
    )
    beside: list[list[StageRow]] = listed(
        "the same of other threads of the process meanwhile, no part of that sum",
        written=list[StageRow],
        may_be_empty=True,
    )
    cpu: list[Duration | None] = listed("CPU time of all threads of the process meanwhile", may_be_empty=True)
    delay: list[Duration | None] = listed(
        "time that the producing thread was ready to run and had no core, of batches of 10 ms and more; `null` if the "
        "kernel does not count it",
        may_be_empty=True,
    )
    worked: list[Duration | None] = listed(
        "time that all threads of a ThreadDataLoader took for it, which `stages` then sum to", may_be_empty=True
    )


@recorded("maker", {"first": "One of the first two batches of a pass in its process; none with `--observe`."})
@dataclass
class FirstBatch:
    """Digests of one of the first batches that a process produced in a pass."""

    epoch: int = told("of the batch")
    index: int = told("of the batch")
    keys: str | None = told("digest of its keys; `null` of an iterable dataset", default=None)
    leaves: list[tuple[str, str, int]] = listed(
        "path, digest of the first 8 samples (empty if they cannot be read), and how many of these differ",
        may_be_empty=True,
    )
    generators: list[tuple[str, str, str]] = listed(
        "random generators of a dataset with keys, the global ones and those that the dataset reaches: name, and "
        "digests of the state before and after the batch",
        may_be_empty=True,
    )
    files: list[str] = listed(
        "paths opened for reading, one for each open, at most 256; names in a record",
        written=list[NameNumber],
        may_be_empty=True,
    )


@dataclass
class OpenedFile:
    """File that was opened for reading during batch production."""

    path: str = told("of the file")
    opens: int = told("how often")


@dataclass
class OpenedFolder:
    """Folder of such files."""

    path: str = told("empty for all that is in no folder listed")
    opens: int = told("of its files")
    is_deep: bool = told("whether files in folders below it count as well")
    ends: list[str] = told("endings of the names; the empty ending stands for all others")


@dataclass
class FileOpens:
    """Files that all processes opened for reading, and the number of opens in each folder."""

    files: list[OpenedFile] = listed("most opens first: the first 64 of each process")
    folders: list[OpenedFolder] = listed("most opens first")
    rest: int = told("opens in folders that are not listed", default=0)


@dataclass
class StoreReads:
    """Requests to one store during batch production."""

    place: str = told(
        "`s3://bucket`, `gs://bucket`, `az://container`, `hf://`, or the host of a web server; never a key, a query or "
        "a user"
    )
    requests: int = told("how many")
    failed: int = told("answered by a status of 400 or more")
    bytes: Bytes = told("what answers announced; of pipes what was read")
    first_us: Duration = told("time until the answers began, of all requests together")
    latencies: list[tuple[int, int]] = told("class of that time, and requests in it: class k begins at 2^(k/8) µs")

    def latency_us(self, quantile: float) -> float:
        """Return the upper bound of the latency for this share of the requests."""
        left = quantile * sum(count for _, count in self.latencies)
        for step, count in self.latencies:
            left -= count
            if left <= 0:
                return float(2 ** ((step + 0.5) / 8))
        return 0.0


@dataclass
class RemoteReads:
    """Requests to all stores, of all processes together."""

    batches: int = told("that were made meanwhile", default=0)
    stores: list[StoreReads] = listed("most bytes first")


@dataclass
class SourceLine:
    """Time in one line of the user's code, by stack samples."""

    place: str = told("`file:line:function` of the innermost frame of the user's own code")
    us: Duration = told("in it")


@dataclass
class BatchProducer:
    """One process that produced batches."""

    pid: Pid = told("of the process")
    host: str = told("on which it ran")
    trainer: Pid | None = told("pid of the process that it works for; its own if a trainer makes its batches itself")
    worker: int | None = told("its id among the workers; `null` for a trainer")
    facts: Facts = told("of its `worker` record", default_factory=dict)
    started: Time | None = told("when the process was started", default=None)
    begun: Time | None = told("when its worker loop began", default=None)
    stages: list[str] = listed("names, `category:label`")
    batches: ProducedBatches = told("batches that it produced", default_factory=ProducedBatches, rows_of="batch")
    first: list[FirstBatch] = listed("digests of its first batches", rows_of="first")
    lines: list[SourceLine] = listed("stack samples of batch production, heaviest first")
    probe: Duration | None = told("cost of the probe in the process", default=None)
