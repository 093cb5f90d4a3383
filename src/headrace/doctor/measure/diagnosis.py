"""Diagnosis of a session: the figures and findings that every report shows."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class TimePart:
    """One part of a whole: its mean time per step (or batch), and its share."""

    name: str
    us: float
    share: float


@dataclass(frozen=True)
class StepBudget:
    """Wall time of the training thread from one step's end to the next; `parts` sum to the whole.

    Names: `data wait`, `host to device`, `forward`, `backward`, `optimizer`, `collective`, `other`.
    """

    pid: int
    rank: int
    unit: str
    """`step`, or `batch` if no optimizer.step() was seen."""
    steps: int
    micro_batches: float
    mean_us: float
    median_us: float
    p95_us: float
    parts: list[TimePart]
    device: list[TimePart] | None
    """The same on the GPU, with `data wait` as the time that it idled for want of a batch."""

    def share(self, name: str) -> float:
        return next((part.share for part in self.parts if part.name == name), 0.0)


@dataclass(frozen=True)
class WaitSplit:
    """Parts of one trainer's data stall per step.

    `Diagnosis.waits` has them by what the batch did: `start-up` (iter(), and workers that had not begun), `shut-down`
    (the next() that ended a pass), `not ready`, `ready but out of order` (a later batch was ready), `pickle`, `unpickle
    and copy`, `pin`, `made here` (no workers), `sampler` (drawing the next indices), `unknown`. `Diagnosis.causes` has
    stages of the awaited batches, as `category:label`, in place of production; in descending order.
    """

    pid: int
    parts: list[TimePart]


@dataclass(frozen=True)
class StagePart:
    """One stage of batch production: its share of the producers' busy time, and its cost per sample."""

    category: str
    label: str
    share: float
    wall_us: float
    cpu_us: float | None
    calls: float

    @property
    def computing(self) -> float | None:
        """Share of its time spent computing rather than waiting; None if unknown."""
        return None if self.cpu_us is None or self.wall_us <= 0 else min(self.cpu_us / self.wall_us, 1.0)


@dataclass(frozen=True)
class LinePart:
    """Line of user code, with its share of the producers' busy time."""

    place: str
    share: float


@dataclass(frozen=True)
class LoaderProduction:
    trainer: int
    loader: int
    workers: int
    batches: int
    busy: float
    """Mean share of time in which the workers worked; if low, they wait for indices since the queue is full."""
    cores: float
    """CPU seconds per second of all workers together, while they worked."""
    batch_us: float
    """Mean wall time to produce one batch in one worker."""
    stages: list[StagePart]
    """Stages in descending order; shares sum to 1 with `other`."""
    lines: list[LinePart]
    start_up_us: float | None
    """Mean time of `iter(loader)`, including the start of workers."""
    first_batch_us: float | None
    """Mean time of the first `next()` of a pass."""
    passes: int
    respawned: bool
    """True if each pass started new workers."""
    item_samples: int = 1
    """Samples per dataset item: more than one if the dataset makes batches."""


@dataclass(frozen=True)
class RankView:
    rank: int
    pid: int
    step_us: float
    late: float
    """Share of the steps in which it arrived last."""
    lateness_us: float
    """Mean time that the others waited for it when it was last."""
    peer_wait_us: float | None
    """Mean wait per step for a peer; None with one rank, or if unknown."""
    collective_us: float | None
    """Mean time per step of the collectives themselves."""
    data_wait_us: float
    cause: str | None
    """Stage that delays it, as `category:label`, if any."""


@dataclass(frozen=True)
class Finding:
    """Finding: a sentence, its evidence, and advice. Findings are sorted by weight."""

    code: str
    weight: float
    """Share of a step that it affects; 0 for mere information."""
    text: str
    evidence: str
    advice: str


@dataclass(frozen=True)
class ProbeCost:
    """Cost of the probe itself, as measured in this run."""

    step_us: float | None
    """Time per step in the training thread."""
    step_share: float | None
    evidence_bytes: int


@dataclass(frozen=True)
class Statement:
    """Sentence or two at the top of a report. Programs read the code, whose meaning stays when the text changes."""

    code: str
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """The complete result. `verdict` comes first in every report if the command ended well."""

    verdict: Statement
    """Step time, the share of the data stall, and its cause."""
    wait_share: float | None
    """Data stall as a share of each step: on the GPU if measured, else on the CPU."""
    seen_by: str
    """`gpu` or `cpu`."""
    budgets: list[StepBudget] = field(default_factory=list)
    waits: list[WaitSplit] = field(default_factory=list)
    causes: list[WaitSplit] = field(default_factory=list)
    batch_production: list[LoaderProduction] = field(default_factory=list)
    ranks: list[RankView] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    cost: ProbeCost = field(default_factory=lambda: ProbeCost(None, None, 0))
    data_share: float | None = None
    """Data stall and the training thread's own data work, as a share of each step."""
    ending: list[Statement] = field(default_factory=list)
    """End of the command; empty if it ended well."""
    statements: list[Statement] = field(default_factory=list)
    """Explanations of the verdict, most important first."""

    @property
    def budgets_by_wait(self) -> list[StepBudget]:
        """Budgets of all ranks, longest data wait first. Reports are about the first rank."""
        return sorted(self.budgets, key=lambda budget: (-budget.share("data wait"), budget.rank))

    @property
    def loaders_by_rank(self) -> list[LoaderProduction]:
        """Loaders in the order of `budgets_by_wait`, and of one rank the busiest first."""
        order = {budget.pid: place for place, budget in enumerate(self.budgets_by_wait)}
        return sorted(
            self.batch_production, key=lambda one: (order.get(one.trainer, len(order)), -one.batches * one.batch_us)
        )
