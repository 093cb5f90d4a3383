"""What a session holds: every measurement of one diagnosis, merged on one clock. Findings are computed from it.

Times are microseconds since the session's origin, and durations are microseconds. A table holds one column a field, all
columns of a table are equally long, and None means not measured. docs/doctor/session.md describes each field, once:
here stand only the values that a text may have, and what numbers refer to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FORMAT = "headrace-session"
VERSION = 1

StageRow = tuple[int, int, int, int]
"""Stage (into `BatchProducer.stages`), calls, wall time and CPU time."""
TensorSummary = tuple[str, float | None, float | None, list[float]]
"""A batch's tensor: type and shape of a sample, lowest and highest value, and a number for each sample."""
PhaseRow = tuple[str, int, int]
"""Name, start and end of a phase of the diagnosis."""


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
    """Value inside a sample or a batch: where it lies, what it is, and the range of its numbers."""

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
    """How one sample was produced: the calls in the order in which they began, and what came out."""

    epoch: int
    index: int
    key: str
    wall: int
    calls: list[ObservedCall] = field(default_factory=list)
    output: list[OutputLeaf] = field(default_factory=list)


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


@dataclass
class ProbedProcess:
    """One process in which the probe ran."""

    pid: int
    parent: int
    host: str
    role: str
    """`trainer`, `worker` or `other`."""
    start: int
    end: int | None
    ended: str | None
    """`exit`, `steps`, `error`, or None if the evidence just stops: the process was killed, or called os._exit."""
    facts: dict[str, Any] = field(default_factory=dict)
    error: str | None = None
    stacks: list[str] = field(default_factory=list)
    cut: bool = False
    evidence_bytes: int = 0
    collections: list[GarbageCollections] = field(default_factory=list)


@dataclass
class GarbageCollections:
    """Full garbage collections of a process, up to a time: how many, their time in µs, and that of the longest."""

    time: int
    count: int
    spent: int
    longest: int


@dataclass
class SessionNote:
    """Something that the report must say, by a code of docs/doctor/evidence.md."""

    code: str
    text: str
    pid: int | None = None
    time: int | None = None


@dataclass
class UnreachedProcess:
    """Python process of the command that imported torch and has no probe."""

    pid: int
    command: str
    why: str


@dataclass
class Machine:
    """One host during the run: facts that do not change, and a table with one row a reading."""

    host: str
    facts: dict[str, Any] = field(default_factory=dict)
    time: list[int] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    """By name with its unit, such as `cpu_cores_busy` or `gpu0_sm_percent`."""
    processes: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By pid: figures over its life, such as `threads_peak`, `cpu_s`, `pss_bytes_peak`, `read_bytes`."""


@dataclass
class CommandOutcome:
    """How the command ended."""

    command: list[str]
    status: int | None
    """Its exit status; 128 + n after signal n; None while it runs, or in a notebook."""
    why: str
    """`finished`, `steps` (the doctor ended it), `failed`, `not found`, `interrupted`, `running`."""
    duration: int
    last_lines: list[str] = field(default_factory=list)


@dataclass
class Proof:
    """A run of the command with remedies injected, by their codes and their `changes` (docs/doctor/remedies.md)."""

    remedies: list[str]
    changes: dict[str, Any]
    why: str
    """`measured`, `broke` (the command failed), `not applied`, `not tried`, `timed out`, `interrupted`."""
    detail: str = ""
    duration: int = 0
    steps: list[int] = field(default_factory=list)
    samples: str | None = None
    """`same`, `close`, `set`, `alike` or `different` (docs/doctor/remedies.md); None if runs cannot be compared."""
    others_cores: float | None = None


@dataclass
class Calibration:
    """Times of files that the run read, as the run reads them and as a remedy would, taken after the run."""

    remedy: str
    unit: str
    """`image`, `look-up` of an archive's member, or `header` of one."""
    files: list[str] = field(default_factory=list)
    present_us: list[float] = field(default_factory=list)
    other_us: list[float] = field(default_factory=list)
    pixel_bytes: list[int] = field(default_factory=list)
    view: str = ""


@dataclass
class SeenFolder:
    """The files of a folder, by the endings of their names."""

    files: int
    read: int
    ends: list[str]
    is_deep: bool
    sized: int
    is_whole: bool


@dataclass
class SeenFile:
    """A file, or a folder of files, that was read while the command ran."""

    path: str
    bytes: int
    seen: int
    opens: int = 0
    folder: SeenFolder | None = None
    images: int | None = None


@dataclass
class StagingPlace:
    """Folder in `memory` or on a `disk` that files could be copied to."""

    path: str
    free_bytes: int
    kind: str


@dataclass
class MachineSurvey:
    """What the doctor looked up on the machine after the command had ended, for remedies."""

    files: list[SeenFile] = field(default_factory=list)
    places: list[StagingPlace] = field(default_factory=list)
    calibrations: list[Calibration] = field(default_factory=list)


@dataclass
class AdoptedPart:
    """Part of the script, and what does it where Headrace's Loader takes its place."""

    part: str
    place: str
    becomes: str
    certainty: str
    """`exact`, `differs`, `check`, `python` or `no`."""
    note: str = ""


@dataclass
class LoaderTrial:
    """Trial of the Loader that could take the place of the run's, in a process of its own on the run's files."""

    why: str
    """`measured`, `failed`, `timed out`, `out of memory`, `interrupted`, `not tried`."""
    detail: str = ""
    module: str = ""
    batch_us: list[float] = field(default_factory=list)
    loaded_us: list[float] = field(default_factory=list)
    cpu_us: float | None = None
    peak_bytes: int | None = None
    threads: int | None = None
    batch_size: int | None = None
    samples: int = 0
    first_us: float | None = None
    stand_in_us: float | None = None
    degree: str = ""
    """`exact`, `draft` or `no`."""
    reason: str = ""
    parts: list[AdoptedPart] = field(default_factory=list)


@dataclass
class Session:
    """Everything measured in one diagnosis."""

    created: str
    """ISO 8601, UTC."""
    mode: str
    """`measure`, `observe` or `watch`."""
    headrace: str
    warmup: int | None
    steps: int
    outcome: CommandOutcome
    processes: list[ProbedProcess] = field(default_factory=list)
    trainers: list[Trainer] = field(default_factory=list)
    makers: list[BatchProducer] = field(default_factory=list)
    opened: FileOpens = field(default_factory=FileOpens)
    machines: list[Machine] = field(default_factory=list)
    unreached: list[UnreachedProcess] = field(default_factory=list)
    notes: list[SessionNote] = field(default_factory=list)
    survey: MachineSurvey | None = None
    proofs: list[Proof] = field(default_factory=list)
    control: Proof | None = None
    """The command run again as it is, which proofs are compared with."""
    loader_trial: LoaderTrial | None = None
    phases: list[PhaseRow] = field(default_factory=list)
    format: str = FORMAT
    version: int = VERSION

    def process_of(self, one: Trainer | BatchProducer) -> ProbedProcess | None:
        """Return the process of a trainer or producer, of those that had its pid on that host the first."""
        return next((process for process in self.processes if (process.host, process.pid) == (one.host, one.pid)), None)

    def process_facts(self, one: Trainer | BatchProducer) -> dict[str, Any]:
        """Return the facts of the process of a trainer or producer."""
        process = self.process_of(one)
        return {} if process is None else process.facts
