"""What a session holds: every measurement of one diagnosis, merged on one clock. Findings are computed from it anew.

Times are microseconds since the session's origin, durations microseconds; a column holds one value a row and all
columns of a table are equally long. None means that it was not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FORMAT = "headrace-session"
VERSION = 1


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
    """CPU time of the thread that unpickled it. The rest of `unpickle` it waited: for the worker, which hands tensors
    over one by one, in its Python."""


@dataclass
class ReplayedBatches:
    """Copies of kept batches that the training thread was given, in order: one row a `next()`. What it took is the
    doctor's, and no part of a step."""

    pass_: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)


@dataclass
class OptimizerSteps:
    """Optimizer steps: one row each. `spans` are [kind, start, duration], of docs/doctor/evidence.md, `start` absolute;
    `device` [kind, time] on the GPU's clock; `ready` of stamped probe steps."""

    number: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    spans: list[list[tuple[str, int, int]]] = field(default_factory=list)
    probe: list[float | None] = field(default_factory=list)
    """Microseconds that the probe cost the training thread."""
    device: list[list[tuple[str, float]] | None] = field(default_factory=list)
    ready: list[int | None] = field(default_factory=list)
    cpu: list[int | None] = field(default_factory=list)
    """CPU time of all the process's threads in it."""
    delay: list[int | None] = field(default_factory=list)
    """How long the training thread was ready to run in it and had no core."""


@dataclass
class Collectives:
    """Synchronous collective calls."""

    step: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    duration: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    bytes: list[int | None] = field(default_factory=list)


@dataclass
class TrainerPass:
    """One iteration over a DataLoader. `workers` are pids by worker id; the trainer's own without workers."""

    number: int
    loader: int
    start: int
    ready: int
    epoch: int
    workers: list[int]
    last: int | None = None
    """Duration of the `next()` that ended it; None where it was not exhausted."""
    last_start: int | None = None


@dataclass
class LoaderFacts:
    """A DataLoader: facts as in the evidence."""

    number: int
    facts: dict[str, Any]


@dataclass
class BatchPadding:
    """Batches of sequences that were looked at for padding: one row a batch."""

    pass_: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    width: list[int] = field(default_factory=list)
    """Tokens a row, padding included."""
    filled: list[int] = field(default_factory=list)
    """Tokens of the batch that are no padding."""
    longest: list[int] = field(default_factory=list)
    """The most of these in one row."""


@dataclass
class UnmeasuredSteps:
    """Steps that a run which is only observed was let pass without being measured, so that it is not slowed down."""

    first: int
    start: int
    end: int
    steps: int
    probe: float
    """Microseconds that the probe cost in them nevertheless."""


@dataclass
class MeasuredWindow:
    """Steps of one kind in a measured run: `observe` (as it is), `replay` (batches that were kept, workers idle),
    `load` (the same while the workers go on at the pace observed), `drain` (batches only, as fast as they come)."""

    name: str
    first: int
    """Number of its first step."""
    steps: int
    """0 for `drain`: nothing is trained in it."""
    settling: int
    """Steps at its beginning that belong to the change from the window before."""
    start: int
    end: int


@dataclass
class BatchDigest:
    """What tells one batch from another, of the first that a trainer received."""

    pass_: int
    content: str
    """Of its tensors' bytes, types and shapes."""
    keys: str | None
    """Of the keys that its sampler drew; None where there were none."""
    sketches: list[list[float]] = field(default_factory=list)
    """Of each tensor a few values from all over it, or a sum of all; empty where there were too many tensors."""


@dataclass
class LoaderFeed:
    """What a loader of Headrace's said of itself in a pass, counted from the pass's start: docs/doctor/evidence.md."""

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
    """Batches that no step waited for: of evaluations, or received by another thread and not seen to be taken over."""
    passes: list[TrainerPass] = field(default_factory=list)
    loaders: list[LoaderFacts] = field(default_factory=list)
    collectives: Collectives = field(default_factory=Collectives)
    shapes: list[str] = field(default_factory=list)
    padding: BatchPadding = field(default_factory=BatchPadding)
    rests: list[UnmeasuredSteps] = field(default_factory=list)
    windows: list[MeasuredWindow] = field(default_factory=list)
    """In order; empty where the run was only observed."""
    replays: ReplayedBatches = field(default_factory=ReplayedBatches)
    """Of the `replay` and `load` windows."""
    drained: ReceivedBatches = field(default_factory=ReceivedBatches)
    """Batches that were taken in the `drain` window."""
    feeds: list[LoaderFeed] = field(default_factory=list)
    digests: list[BatchDigest] = field(default_factory=list)
    """Of its first batches, in order, where runs were to be compared; else empty."""


@dataclass
class ProducedBatches:
    """Batches that one process made. `stages` are [stage, calls, wall, cpu] with `stage` into `Maker.stages`."""

    epoch: list[int] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    start: list[int] = field(default_factory=list)
    fetched: list[int] = field(default_factory=list)
    sent: list[int | None] = field(default_factory=list)
    serialise: list[int | None] = field(default_factory=list)
    samples: list[int | None] = field(default_factory=list)
    stages: list[list[tuple[int, int, int, int]]] = field(default_factory=list)
    beside: list[list[tuple[int, int, int, int]]] = field(default_factory=list)
    """The same of other threads of the process meanwhile, which are no part of the batch's time; empty where there
    were none for any batch."""
    cpu: list[int | None] = field(default_factory=list)
    """CPU time of all the process's threads, from `start` to `fetched`."""
    delay: list[int | None] = field(default_factory=list)
    """How long the thread that made it was ready to run meanwhile and had no core."""
    worked: list[int | None] = field(default_factory=list)
    """What all the threads that made it together took, which `stages` sum to; empty where one thread made each."""


@dataclass
class SlowSample:
    """One of the slowest samples: its key as text, its wall time, and [stage, wall] as in `Batches`."""

    key: str
    epoch: int
    index: int
    wall: int
    stages: list[tuple[int, int]]


@dataclass
class InspectedStage:
    """A stage of a sample that was looked at closely."""

    stage: int
    """Into `Maker.stages`."""
    drew: bool
    """Whether random numbers were drawn since the stage before it had ended."""
    same: bool | None
    """Whether it gave the same when the sample was made again; None where that is not known."""


@dataclass
class InspectedSample:
    """A sample whose making was looked at closely: its stages in the order in which they ended."""

    epoch: int
    index: int
    """Of its batch."""
    stages: list[InspectedStage]
    drew: bool
    """Whether random numbers were drawn behind the last stage."""
    same: bool | None
    """Whether the whole sample was the same when it was made again; None where it was not, or cannot be compared."""
    takes: list[str] = field(default_factory=list)
    """Remedies, by their keys in `changes`, that injection would have done something for in it."""


@dataclass
class OpenedFile:
    """A file that was opened to be read while a batch was made."""

    path: str
    opens: int


@dataclass
class OpenedFolder:
    """A folder of such files."""

    path: str
    opens: int
    names: int
    """Of files in it that were opened; estimated unless `is_exact`."""
    is_exact: bool
    is_deep: bool
    """Whether files in folders beneath it count, too: there were too many of these to tell each."""
    ends: list[str]
    """Of these names, such as `.jpg`; the empty one, where names have no end or many, stands for all."""


@dataclass
class FileOpens:
    """What makers opened to read, all processes together. Every open counts in its folder; by path only so many files a
    process are known."""

    files: list[OpenedFile] = field(default_factory=list)
    folders: list[OpenedFolder] = field(default_factory=list)
    """Those with the most opens first."""
    rest: int = 0
    """Opens in folders that are not told."""


@dataclass
class SourceLine:
    """Time seen in one line of the user's code."""

    place: str
    """`file:line:function`."""
    us: int


@dataclass
class BatchProducer:
    """One process that made batches: a worker (`worker` its id), or a trainer without workers (`worker` None)."""

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
    """Samples that were looked at closely, a few of each dataset; empty in sessions of an earlier doctor."""
    lines: list[SourceLine] = field(default_factory=list)
    probe: int | None = None
    """Microseconds that the probe cost it in all."""


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
    """`exit`, `steps`, `error`, or None where the evidence just stops: it was killed, or called os._exit."""
    facts: dict[str, Any] = field(default_factory=dict)
    """As in the evidence, by the kind of record: `process`, `torch` and `facts`, newer ones over older."""
    error: str | None = None
    stacks: list[str] = field(default_factory=list)
    cut: bool = False
    """Whether its evidence was thinned or ends in the middle of a record."""
    evidence_bytes: int = 0


@dataclass
class SessionNote:
    """Something that the report must say; codes of docs/doctor/evidence.md."""

    code: str
    text: str
    pid: int | None = None
    time: int | None = None


@dataclass
class UnreachedProcess:
    """A Python process of the command that imported torch, and in which no probe ran."""

    pid: int
    command: str
    why: str


@dataclass
class Machine:
    """One host during the run: facts that do not change, and samples, one row a reading. Tables as in
    docs/doctor/session.md."""

    host: str
    facts: dict[str, Any] = field(default_factory=dict)
    time: list[int] = field(default_factory=list)
    columns: dict[str, list[float | None]] = field(default_factory=dict)
    """Of the whole machine, by name with its unit, such as `cpu_cores_busy` or `gpu0_sm_percent`."""
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
    """A remedy, or several together, tried by running the command again with them injected."""

    remedies: list[str]
    """Their codes, as the prescription has them."""
    changes: dict[str, Any]
    """What was injected: docs/doctor/remedies.md."""
    why: str
    """`measured`; `broke` (the command failed with it), `not applied` (nothing in the run took the change), `not tried`
    (there was no time left, or the command cannot be run again), `timed out`, `interrupted`."""
    detail: str = ""
    """The last lines of a command that broke; what was not applied."""
    duration: int = 0
    """Of the whole run."""
    steps: list[int] = field(default_factory=list)
    """Durations of the measured steps; of several ranks, of the slowest."""
    samples: str | None = None
    """Whether the samples were those of the run without it: `same`, bit for bit; `close`, the same but for how pixels
    are rounded; `different`; or None where that cannot be compared, because order or augmentation is drawn anew in
    every run."""
    others_cores: float | None = None
    """That other programs kept busy meanwhile, on average; None where that was not measured."""


@dataclass
class Calibration:
    """What one file took in the way in which the run read it, and in the way of a remedy, timed once the run had ended:
    one row a file, of those that the run was seen to read."""

    remedy: str
    """Its code."""
    unit: str
    """What was timed: `image`, `look-up` of an archive's member, or `header` of one."""
    files: list[str] = field(default_factory=list)
    """Paths; of a member of an archive, the archive's and its own name."""
    present_us: list[float] = field(default_factory=list)
    """Empty where the run itself measured that."""
    other_us: list[float] = field(default_factory=list)
    pixel_bytes: list[int] = field(default_factory=list)
    """Of the decoded image; empty where none was decoded."""


@dataclass
class SeenFolder:
    """The files of a folder, by what they end in."""

    files: int
    """That are there; at least so many where it was not listed to its end."""
    read: int
    """Of them that were opened; an estimate where there are many."""
    ends: list[str]
    """Of their names; the empty one stands for all."""
    is_deep: bool
    """Whether those in folders beneath it belong to them."""
    sized: int
    """Files whose sizes were looked up. Where that is not all of them, the folder's bytes are estimated."""
    is_whole: bool
    """Whether it was listed to its end; else its bytes are not known."""


@dataclass
class SeenFile:
    """A file, or a folder of files, that was read while the command ran."""

    path: str
    bytes: int
    seen: int
    """How often the sampler saw it open."""
    opens: int = 0
    """How often it, or a file of it, was opened while a batch was made. 0 of one that was opened before."""
    folder: SeenFolder | None = None
    """None of a single file, whose bytes are exact."""


@dataclass
class StagingPlace:
    """Somewhere that files could be copied to."""

    path: str
    free_bytes: int
    kind: str
    """`memory` or `disk`."""


@dataclass
class MachineSurvey:
    """What was looked up on the machine once the command had ended, for remedies."""

    files: list[SeenFile] = field(default_factory=list)
    """Those opened most first, then those that were only seen open. Of a file that was opened before the first batch
    and read without being open, through a memory map say, nothing is known."""
    places: list[StagingPlace] = field(default_factory=list)
    calibrations: list[Calibration] = field(default_factory=list)


@dataclass
class Session:
    """Everything measured in one diagnosis."""

    created: str
    """ISO 8601, UTC."""
    mode: str
    """`measure`, `observe` or `watch`."""
    headrace: str
    """Version of the doctor."""
    warmup: int | None
    """Steps asked for before the measured ones; None for the doctor's own choice."""
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
    """None where the machine was not looked at."""
    proofs: list[Proof] = field(default_factory=list)
    control: Proof | None = None
    """The command run once more as it is, before remedies were tried: what they are compared with. None where none
    were, or there was no time for it."""
    format: str = FORMAT
    version: int = VERSION
