"""Diagnosis of a session: the figures and findings that every report shows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class TimePart:
    """One part of a whole: its mean time a step (or batch), and its share of the whole."""

    name: str
    us: float
    share: float


@dataclass(frozen=True)
class StepBudget:
    """Wall time of the training thread between two steps' ends; `parts` sum to the whole.

    Names: `data wait`, `host to device`, `forward`, `backward`, `optimizer`, `collective`, `other`.
    """

    pid: int
    rank: int
    unit: str
    """`step`, or `batch` where no optimizer.step() was seen."""
    steps: int
    micro_batches: float
    """Batches a step."""
    mean_us: float
    median_us: float
    p95_us: float
    parts: list[TimePart]
    device: list[TimePart] | None
    """The same as the GPU sees it, `data wait` there being the time that it stood still for want of a batch."""
    mean_half_us: float | None = None
    """Half of the mean's 95 % confidence interval, where there are two steps to less than 20."""

    def share(self, name: str) -> float:
        return next((part.share for part in self.parts if part.name == name), 0.0)


@dataclass(frozen=True)
class WaitSplit:
    """Parts of the data wait of one trainer, a step.

    Names: `start-up` (iter(), and workers that had not begun yet), `shut-down` (the next() that ended a pass), `not
    ready`, `ready but out of order` (a later batch was ready), `pickle`, `unpickle and copy`, `pin`, `made here` (no
    workers), `sampler` (drawing the next indices), `unknown`.
    """

    pid: int
    parts: list[TimePart]


@dataclass(frozen=True)
class StagePart:
    """One stage of making batches: its share of the makers' busy time, and what a sample costs in it."""

    category: str
    label: str
    share: float
    wall_us: float
    cpu_us: float | None
    calls: float
    """A batch."""


@dataclass(frozen=True)
class SlowSampleFinding:
    """One of the slowest samples of all makers."""

    key: str
    wall_us: float
    times: float
    """Multiple of the median sample's time."""
    stage: str
    """Stage in which it spent most."""


@dataclass(frozen=True)
class LinePart:
    """A line of the user's own code, with its share of the makers' busy time."""

    place: str
    share: float


@dataclass(frozen=True)
class SampleFunction:
    """Function that takes part in making a batch: a library's, or Python of the script's own."""

    category: str
    """`call` (numpy, torch, scipy and others without a stage), `getitem` (the script's own Python), or its stage's."""
    name: str
    """`numpy.percentile`, `Pillow resize`, or the name of the script's function."""
    places: list[str]
    """Lines of the script that it is called from, or that it consists of, `file:line:function`, heaviest first."""
    share: float
    """Of making a batch, without the functions that it calls."""
    wall_us: float
    """A sample."""
    inside: dict[str, float] = field(default_factory=dict)
    """Its share by the stage that it is counted in."""
    library: str = ""
    """Package of a transform's class."""
    given: dict[str, Any] = field(default_factory=dict)
    """What is known of its input: `shape`, `dtype`, `mode`, `format`, `filter`."""


@dataclass(frozen=True)
class LoaderProduction:
    """Production of the batches of one loader."""

    trainer: int
    """Pid."""
    loader: int
    workers: int
    batches: int
    busy: float
    """Share of their time in which the workers worked, of 1 a worker on average; a low one means that they are waited
    for by nobody, or wait for indices because the queue is full."""
    cores: float
    """CPU seconds a second, all workers together, while they worked."""
    batch_us: float
    """Mean wall time of making one batch in one worker."""
    stages: list[StagePart]
    """Heaviest first; shares sum to 1 with `other`."""
    lines: list[LinePart]
    slow: list[SlowSampleFinding]
    start_up_us: float | None
    """Mean time of `iter(loader)` until it returned, workers' start included."""
    first_batch_us: float | None
    """Mean time of the first `next()` of a pass."""
    passes: int
    respawned: bool
    """Whether each pass started new workers."""
    threads: bool = False
    """Whether `workers` are threads of the trainer: of one of Headrace's own loaders."""
    item_samples: int = 1
    """Samples of an item of the dataset: more than one where it batches by itself."""
    functions: list[SampleFunction] = field(default_factory=list)
    """Heaviest first; none where no sample was inspected."""

    @property
    def makers(self) -> str:
        """`worker` or `thread`."""
        return "thread" if self.threads else "worker"


@dataclass(frozen=True)
class RankView:
    """One rank alongside the others."""

    rank: int
    pid: int
    step_us: float
    late: float
    """Share of the steps in which it was the last to arrive."""
    lateness_us: float
    """Mean time that the others waited for it in those steps."""
    peer_wait_us: float | None
    """Mean time a step that it waited for a peer; None with one rank, or where that cannot be told apart."""
    collective_us: float | None
    """Mean time a step of the collectives themselves."""
    data_wait_us: float
    cause: str | None
    """The stage that makes it late, as `category:label`, where one does."""


@dataclass(frozen=True)
class Finding:
    """Something worth knowing, heaviest first: a sentence, what shows it, and what to look at."""

    code: str
    weight: float
    """Share of a step that it concerns; 0 for what is only worth knowing."""
    text: str
    evidence: str
    advice: str


@dataclass(frozen=True)
class ProbeCost:
    """Cost of the probe itself, as measured in this run."""

    step_us: float | None
    """On the training thread, a step."""
    step_share: float | None
    worker_share: float | None
    """Share of the makers' busy time."""
    evidence_bytes: int


@dataclass(frozen=True)
class WaitCauses:
    """Causes of the data wait of one trainer, a step, heaviest first.

    They are stages of the batches waited for, as `category:label`, and the names of `WaitSplit` for what lies outside
    of making them.
    """

    pid: int
    parts: list[TimePart]


@dataclass(frozen=True)
class Statement:
    """Sentence or two at the top of a report. Programs read the code, whose meaning stays when the text changes."""

    code: str
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """The whole answer. Where the command ended well, `verdict` comes first in every report."""

    verdict: Statement
    """The step's time, how much of it waits for data, and what it waits for."""
    wait_share: float | None
    """Data wait as a share of each step: as the GPU sees it where that was measured, else as the CPU does."""
    seen_by: str
    """`gpu` or `cpu`."""
    budgets: list[StepBudget] = field(default_factory=list)
    waits: list[WaitSplit] = field(default_factory=list)
    causes: list[WaitCauses] = field(default_factory=list)
    batch_production: list[LoaderProduction] = field(default_factory=list)
    ranks: list[RankView] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    cost: ProbeCost = field(default_factory=lambda: ProbeCost(None, None, None, 0))
    data_share: float | None = None
    """Data wait and the training thread's own work on data, as a share of each step."""
    ending: list[Statement] = field(default_factory=list)
    """How the command ended; empty if it ended well."""
    statements: list[Statement] = field(default_factory=list)
    """What stands behind the verdict, the most telling first."""
