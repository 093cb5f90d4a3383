"""What a session holds: every measurement of one diagnosis, merged on one clock. Findings are computed from it.

Times are microseconds since the session's origin, and durations are microseconds. A table holds one column a field, all
columns of a table are equally long, and None means not measured. docs/doctor/session.md describes each field, once:
here stand only the values that a text may have, and what numbers refer to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .after_run import LoaderTrial, LookedImage, MachineSurvey, Proof
from .producers import BatchProducer, FileOpens, RemoteReads
from .trainers import Trainer

FORMAT = "headrace-session"
VERSION = 1

PhaseRow = tuple[str, int, int]
"""Name, start and end of a phase of the diagnosis."""


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
    remote: RemoteReads = field(default_factory=RemoteReads)
    machines: list[Machine] = field(default_factory=list)
    unreached: list[UnreachedProcess] = field(default_factory=list)
    notes: list[SessionNote] = field(default_factory=list)
    survey: MachineSurvey | None = None
    proofs: list[Proof] = field(default_factory=list)
    control: Proof | None = None
    """The command run again as it is, which proofs are compared with."""
    looked_image: LookedImage | None = None
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
