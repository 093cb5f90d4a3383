"""Evidence: one struct for each kind of record that a probe writes, and their decoder.

Each line of an evidence file is a JSON array: the kind, then its fields in order. The probe writes plain tuples; a test
compares them with these structs. Values that may be None or empty can be omitted at the end of a line. A *name* is the
number of a text that a `name` record of the same file defines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Union

import msgspec

from headrace.doctor.session import trainers
from headrace.doctor.session.trainers import Facts, StageRow, Time


class EvidenceLine(msgspec.Struct, array_like=True, tag_field="kind"):
    """Decoded line of an evidence file."""


class ProcessLine(EvidenceLine, tag="process"):
    """First line of a file: the process that wrote it."""

    time: Time
    facts: Facts
    """pid, parent, host, python, executable, argv, rank."""


class NameLine(EvidenceLine, tag="name"):
    """Recurring text, and the number that later records name it by."""

    number: int
    text: str


class FactsLine(EvidenceLine, tag="facts"):
    """Facts that only the process knows, at its end and at its first use of CUDA; newer ones replace older ones."""

    time: Time
    facts: Facts
    """torch_threads, omp_threads, opencv_threads, device. Of a trainer: warmup_steps,
    window (the latest), draws (True once samples draw from a shared generator), replica_inputs (`leaves` as in `first`,
    of a DistributedDataParallel model's first two inputs), entered (in a checked run: path of an image, and the
    scale and shift of each channel between the batch and the model's input), embedded (in a checked run: rows of token
    ids, and the largest gradient of each token's embedding)."""


class TorchLine(FactsLine, tag="torch"):
    """Import of torch: its version and cuda. The file was begun just before."""


class NoteLine(EvidenceLine, tag="note"):
    """Message for the report."""

    time: Time
    code: str
    text: str


class AppliedLine(EvidenceLine, tag="applied"):
    """Remedy of settings' `changes` that took effect: at its first effect, for each text, and at the end."""

    time: Time
    key: str
    count: int
    """Places so far."""
    text: str
    """Explanation of the effect; with `count` 0, of its absence."""


class ErrorLine(EvidenceLine, tag="error"):
    """Exception that ended the process. An `end` record follows if it then ended in order."""

    time: Time
    text: str
    """Last 50 lines of its traceback."""


class StackLine(EvidenceLine, tag="stack"):
    """Stack of a batch that hangs (`hung`), or of a training thread that stands still (`stands`) or moves (`moves`).

    Also the error of a batch that could not be sent (`lost`).
    """

    time: Time
    what: str
    text: str


class EndLine(EvidenceLine, tag="end"):
    """Orderly end of the process; absent from a process that was killed."""

    time: Time
    reason: str
    """`exit`, or `steps` if the doctor ended the run; then written before the look at samples."""


class GetLine(EvidenceLine, tag="get"):
    """Batch that the training thread received by a `next()`."""

    pass_: int
    index: int
    """Number of the batch in its pass."""
    start: Time
    duration: int
    arrived: Time | None = None
    """End of unpickling from the workers' queue; an earlier batch may have held it back since."""
    unpickle: int | None = None
    pin_start: Time | None = None
    pin: int | None = None
    """Duration of copying to pinned memory."""
    bytes: int | None = None
    shape: int | None = None
    """Name of its tensors' types and shapes."""
    unpickle_cpu: int | None = None
    """CPU time of the thread in unpickling, which otherwise waits for the worker to hand tensors over."""


class FetchLine(GetLine, tag="fetch"):
    """Batch that no step waited for: of an evaluation, or received by another thread without a visible hand-over."""


class ReplayedLine(EvidenceLine, tag="replayed"):
    """Copy of a cached batch in place of a batch of the loader's."""

    pass_: int
    start: Time
    duration: int
    """Duration of copying; the doctor's own time."""


class StepLine(EvidenceLine, tag="step"):
    """Optimizer step, from the end of the step before to the end of its last `optimizer.step()`."""

    number: int
    start: Time
    end: Time
    spans: list[tuple[str, int, int]] = []
    """Kind, start since the step's start, and duration, in order. Spans never overlap: an inner span cuts the outer
    span in two. Waits for batches are no spans."""
    probe: float | None = None
    """Cost of the loop's hooks in tenths of a microsecond."""
    cpu: int | None = None
    """CPU time of all threads of the process."""
    delay: int | None = None
    """Time in which the training thread was ready to run and had no core, of steps of 10 ms and more."""


class CollectiveLine(EvidenceLine, tag="collective"):
    """Synchronous collective call within a step; at most 1024 a step."""

    step: int
    start: Time
    duration: int
    name: int


class PassLine(trainers.BegunPass, EvidenceLine, tag="pass", array_like=True):
    """One `iter(loader)`, from its call until it returned."""


class LoaderLine(EvidenceLine, tag="loader"):
    """DataLoader at its first iteration."""

    number: int
    time: Time
    facts: Facts


class PaddingLine(EvidenceLine, tag="padding"):
    """Batch of sequences that was checked for padding: every 8th of a pass, 64 in all."""

    pass_: int
    index: int
    rows: int
    width: int
    filled: int
    """Tokens that are no padding, by `attention_mask`, else by the value that most rows of the first matrix of whole
    numbers end with."""
    longest: int
    """Most of these in a row."""


class WindowLine(trainers.MeasuredWindow, EvidenceLine, tag="window", array_like=True):
    """Window of a measured run that has ended."""


class DigestLine(trainers.BatchDigest, EvidenceLine, tag="digest", array_like=True):
    """Identity of one of the first batches, where runs are to be compared."""


class KeysLine(trainers.PassKeys, EvidenceLine, tag="keys", array_like=True):
    """End of a pass in a run that is checked for faults of its data."""


class RowsLine(trainers.StreamRows, EvidenceLine, tag="rows", array_like=True):
    """Batch of a stream in a run that is checked for faults of its data."""


class DrawnLine(trainers.DrawnBatch, EvidenceLine, tag="drawn", array_like=True):
    """Batch that a run with `headrace check resume` took from a DataLoader."""


class SavedLine(trainers.SavedCheckpoint, EvidenceLine, tag="saved", array_like=True):
    """Checkpoint that a run with `headrace check resume` wrote."""


class LastLine(EvidenceLine, tag="last"):
    """The `next()` that found the end of a pass."""

    pass_: int
    start: Time
    duration: int


class DeviceLine(EvidenceLine, tag="device"):
    """The GPU's view of a step, written later: marks by CUDA events on the current stream."""

    number: int
    kinds: str
    """A letter of the marks for each; at most four copies after each batch."""
    gaps: list[int]
    """Tenths of a microsecond since the mark before; for the first mark, since the process's first mark."""


class ReadyLine(EvidenceLine, tag="ready"):
    """Stamped step: the moment at which this rank's own gradients were done."""

    number: int
    time: Time


class LoopLine(EvidenceLine, tag="loop"):
    """Stack samples of the training thread's work on batches since the last such record."""

    time: Time
    counts: list[tuple[int, int]]
    """Name of `file:line:function` of the innermost frame outside site-packages and the stdlib, and its time."""


class WorkerLine(EvidenceLine, tag="worker"):
    """Start of a worker."""

    time: Time
    facts: Facts
    """id, parent, dataset, start_method."""


class BatchLine(EvidenceLine, tag="batch"):
    """Batch that was produced."""

    epoch: int
    """Number of the pass over these workers, or of the trainer's own pass; below 0 outside the training thread."""
    index: int
    start: Time
    fetched: Time
    """End of collating."""
    sent: Time | None = None
    """End of writing into the pipe; None in the trainer itself."""
    serialise: int | None = None
    """Duration of pickling, a part of sending."""
    samples: int | None = None
    stages: list[StageRow] = []
    """Stages without inner stages; their wall times sum to `fetched` less `start`."""
    cpu: int | None = None
    """CPU time of all threads of the process meanwhile."""
    delay: int | None = None
    """Time in which the thread was ready to run and had no core, of batches of 10 ms and more."""


class FirstLine(EvidenceLine, tag="first"):
    """One of the first two batches of a pass in its process, or any of a stream in a check; none with `--observe`."""

    epoch: int
    index: int
    keys: str | None = None
    """Digest of its keys; None of an iterable dataset."""
    leaves: list[tuple[str, str, int]] = []
    """Path, digest of the first 8 samples (empty if they cannot be read), and number of different ones."""
    generators: list[tuple[str, str, str]] = []
    """Global random generators and those of a dataset with keys: name, digests of the state before and after."""
    files: list[int] = []
    """Names of paths opened for reading, one for each open, at most 256."""
    state: dict[str, float] = {}
    """Numbers among the dataset's attributes."""


class BeforeLine(LoopLine, tag="before"):
    """Stack samples of the program's start, from the import of torch's DataLoader to the first pass over a loader."""


class LinesLine(LoopLine, tag="lines"):
    """Stack samples of batch production since the last such record; written now and then."""


class RemoteLine(EvidenceLine, tag="remote"):
    """Requests to stores during batch production since the last such record."""

    time: Time
    batches: int
    stores: list[tuple[int, int, int, int, int]]
    """Name of the store, requests, failed ones, bytes, and time until the answers began. At most 16, others together as
    `other stores`."""


def _kinds(line: type[EvidenceLine]) -> Iterator[type[EvidenceLine]]:
    for kind in line.__subclasses__():
        yield kind
        yield from _kinds(kind)


KINDS = {str(kind.__struct_config__.tag): kind for kind in _kinds(EvidenceLine)}
"""All kinds of record by name."""
_ANY: Any = Union[tuple(KINDS.values())]  # noqa: UP007  (a union of a tuple has no other spelling)
decode_record: Callable[[bytes], EvidenceLine] = msgspec.json.Decoder(_ANY).decode
"""Decode a line of evidence into its record. Raises DecodeError or UnicodeDecodeError."""
